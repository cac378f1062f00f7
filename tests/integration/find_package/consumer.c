#include <stdio.h>

#include <kolo/kolo_c.h>

int main(void) {
  kolo_runtime* runtime = NULL;
  float values[1000];
  kolo_place place = KOLO_PLACE_INIT;
  kolo_status status = kolo_open(NULL, &runtime);
  for (int i = 0; i < 1000; ++i) values[i] = 1;
  kolo_tensor tensor = KOLO_TENSOR(values, 1000, KOLO_FLOAT32);
  if (status == KOLO_OK) status = kolo_get_place(runtime, &place);
  if (status == KOLO_OK) {
    status = kolo_all_reduce(kolo_world(runtime), &tensor, 1, KOLO_SUM, NULL, NULL);
  }
  kolo_release(runtime);
  if (status != KOLO_OK) {
    fprintf(stderr, "consumer: %s\n", kolo_last_error()->text);
    return kolo_exit_status(status);
  }
  printf("the sum over %d rank(s) is %g\n", place.world_size, (double)values[0]);
  return values[0] == (float)place.world_size ? 0 : 1;
}
