// kolo-train with this project's own model, optimizer and data set.

#include <kolo/trainer/catalog.h>
#include <kolo/trainer/loop/trainer_program.h>

kolo::trainer::ModelEntry thin_model();
kolo::trainer::OptimizerEntry sign_sgd();
kolo::trainer::DatasetEntry bright_rows();

int main(int argc, char** argv) {
  kolo::trainer::Catalog catalog = kolo::trainer::built_in_catalog();
  catalog.models.add(thin_model());
  catalog.optimizers.add(sign_sgd());
  catalog.datasets.add(bright_rows());
  return kolo::trainer::run_trainer(catalog, argc, argv);
}
