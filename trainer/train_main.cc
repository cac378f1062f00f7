// kolo-train: trains a model on all ranks of a job.

#include "trainer/catalog.h"
#include "trainer/loop/trainer_program.h"

int main(int argc, char** argv) {
  return kolo::trainer::run_trainer(kolo::trainer::built_in_catalog(), argc, argv);
}
