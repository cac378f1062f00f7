#include "trainer/catalog.h"

#include "trainer/models/bert.h"
#include "trainer/models/gpt.h"
#include "trainer/models/image_models.h"
#include "trainer/models/matrix_factorization.h"
#include "trainer/models/text_models.h"

namespace kolo::trainer {

Catalog built_in_catalog() {
  Catalog c;
  c.tasks.add(image_classification());
  c.tasks.add(text_classification());
  c.tasks.add(language_model());
  c.tasks.add(rating());
  c.tasks.add(masked_tokens());

  c.models.add(Mlp::entry());
  c.models.add(Lenet::entry());
  c.models.add(Convnet::entry());
  c.models.add(Resnet::entry20());
  c.models.add(Resnet::entry18());
  c.models.add(EmbeddingBagClassifier::entry());
  c.models.add(LstmClassifier::entry());
  c.models.add(MatrixFactorization::entry());
  c.models.add(Gpt::entry());
  c.models.add(Bert::entry());

  c.datasets.add(mnist_entry());
  c.datasets.add(cifar10_entry());
  c.datasets.add(optdigits_entry());
  c.datasets.add(trec_entry());
  c.datasets.add(sst2_entry());
  c.datasets.add(sms_spam_entry());
  c.datasets.add(imdb_entry());
  c.datasets.add(csv_entry());
  c.datasets.add(tsv_entry());
  c.datasets.add(jsonl_entry());
  c.datasets.add(movielens_entry());
  c.datasets.add(tokens_entry());
  c.datasets.add(words_entry());
  c.datasets.add(text_entry());

  c.optimizers.add(sgd_entry());
  c.optimizers.add(adamw_entry());
  c.optimizers.add(lars_entry());
  c.optimizers.add(lamb_entry());

  c.lr_schedules.add(cosine_schedule());
  c.lr_schedules.add(linear_schedule());
  c.lr_schedules.add(step_schedule());
  c.lr_schedules.add(constant_schedule());
  return c;
}

}  // namespace kolo::trainer
