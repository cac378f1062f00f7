/* Least squares by stochastic gradient descent in a program that already uses MPI, and its
 * additions for Kolo through the C interface. The program uses MPI; gradients use Kolo. */

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <kolo/kolo_c.h>
#include <mpi.h>

enum { kFeatures = 8, kBatch = 32, kSteps = 200 };

/* A number between -1 and 1, the next of a sequence. */
static float next(uint64_t* state) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return (float)((double)(*state >> 33) / (double)(1u << 30) - 1.0);
}

/* Ends all ranks with the exit status of the error, unless there is none. */
static void ok(kolo_status status) {
  if (status == KOLO_OK) return;
  fprintf(stderr, "%s\n", kolo_last_error()->text);
  MPI_Abort(MPI_COMM_WORLD, kolo_exit_status(status));
}

static kolo_gradient gradient(const char* name, const size_t* count, void* data) {
  kolo_gradient spec = KOLO_GRADIENT_INIT;
  spec.name = name;
  spec.shape = count;
  spec.num_dimensions = 1;
  spec.dtype = KOLO_FLOAT32;
  spec.data = data;
  return spec;
}

static float train(kolo_group* world, int rank) {
  const size_t features = kFeatures, one = 1;
  float weights[kFeatures] = {0}, weights_gradient[kFeatures], bias = 0, bias_gradient, loss = 0;
  uint64_t random = (uint64_t)rank + 1; /* Every rank has its own samples. */

  const kolo_gradient gradients[] = {gradient("weights", &features, weights_gradient),
                                     gradient("bias", &one, &bias_gradient)};
  kolo_gradients* set = NULL;
  ok(kolo_register_gradients(world, "model", gradients, 2, NULL, &set));

  for (int step = 0; step < kSteps; ++step) {
    for (int i = 0; i < kFeatures; ++i) weights_gradient[i] = 0;
    bias_gradient = loss = 0;
    for (int n = 0; n < kBatch; ++n) {
      float x[kFeatures], error = bias + 3; /* The truth: y = sum of (i + 1) x_i, minus 3. */
      for (int i = 0; i < kFeatures; ++i) {
        x[i] = next(&random);
        error += (weights[i] - (float)(i + 1)) * x[i];
      }
      for (int i = 0; i < kFeatures; ++i) weights_gradient[i] += error * x[i] / kBatch;
      bias_gradient += error / kBatch;
      loss += error * error / kBatch;
    }
    ok(kolo_gradients_ready(set, 0));
    ok(kolo_gradients_ready(set, 1));
    ok(kolo_gradients_wait(set, -1, NULL)); /* Each gradient is now the average over all ranks. */
    for (int i = 0; i < kFeatures; ++i) weights[i] -= 0.3f * weights_gradient[i];
    bias -= 0.3f * bias_gradient;
  }
  kolo_gradients_release(set);
  return loss;
}

int main(int argc, char** argv) {
  int rank = 0, size = 1;
  float loss = 0, mean = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);

  kolo_runtime* runtime = NULL;
  ok(kolo_open(NULL, &runtime));
  loss = train(kolo_world(runtime), rank);
  kolo_release(runtime);

  MPI_Allreduce(&loss, &mean, 1, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  if (rank == 0) printf("loss %.6f on %d ranks\n", (double)(mean / (float)size), size);
  MPI_Finalize();
  return isfinite(mean) && mean < 1e-3f ? EXIT_SUCCESS : EXIT_FAILURE;
}
