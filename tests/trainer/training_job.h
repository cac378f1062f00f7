#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/api/kolo.h"
#include "tests/support/memory_rendezvous.h"
#include "tests/trainer/small_data.h"
#include "trainer/catalog.h"
#include "trainer/compute/device.h"
#include "trainer/config.h"
#include "trainer/loop/job.h"
#include "trainer/loop/learner.h"
#include "trainer/loop/training.h"

namespace kolo::trainer {

/// Runs a job of `ranks` ranks, each a thread with a runtime, and returns their summaries by rank.
/// Summaries are empty if `wants_stop`, which is called after each step, ended the job. Throws the
/// error of the first rank that has one.
inline std::vector<std::optional<Summary>> run_ranks_until(
    const std::function<bool(int rank)>& wants_stop, int ranks,
    const std::function<Config(int rank)>& config_of) {
  auto endpoints = make_memory_rendezvous(ranks, std::chrono::seconds(60));
  std::vector<std::optional<Summary>> summaries(static_cast<std::size_t>(ranks));
  std::vector<std::exception_ptr> errors(summaries.size());
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < summaries.size(); ++rank) {
    threads.emplace_back([&, rank] {
      try {
        set_compute_threads(1);
        const Config config = config_of(static_cast<int>(rank));
        Runtime runtime(std::move(endpoints[rank]), config.runtime);
        const Catalog catalog = built_in_catalog();
        const Task task = make_task(config, catalog);
        require_same_job(config, runtime, task);
        const std::unique_ptr<Learner> learner = make_learner(config, runtime, task, catalog);
        summaries[rank] = train(config, runtime, task, catalog.lr_schedules.at(config.lr_schedule),
                                *learner, {}, [&] { return wants_stop(static_cast<int>(rank)); });
        runtime.close();
      } catch (...) {
        errors[rank] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
  return summaries;
}

/// Runs a job to its end; returns the summaries by rank.
inline std::vector<Summary> run_ranks(int ranks, const std::function<Config(int rank)>& config_of) {
  std::vector<Summary> summaries;
  for (auto& summary : run_ranks_until([](int) { return false; }, ranks, config_of)) {
    summaries.push_back(std::move(summary).value());
  }
  return summaries;
}

inline std::vector<Summary> run_ranks(int ranks, const Config& config) {
  return run_ranks(ranks, [&](int) { return config; });
}

/// Returns the error with which a job of two ranks is refused.
inline std::string refusal_of(const Config& config) {
  return error_of(
      [&] {
        validate(config, built_in_catalog());
        run_ranks(2, config);
      },
      ErrorCode::kConfig);
}

/// Runs a job to its end, with one rank per node.
inline std::vector<Summary> run_nodes(int ranks, const Config& config) {
  return run_ranks(ranks, [&](int rank) {
    Config own = config;
    own.runtime.node_id = std::to_string(rank);
    return own;
  });
}

/// Expects that the losses of all steps, and the final held-out loss, differ at most by this share.
inline void expect_same_course(const Summary& actual, const Summary& expected, double share) {
  ASSERT_EQ(actual.curve.size(), expected.curve.size());
  for (std::size_t i = 0; i < expected.curve.size(); ++i) {
    EXPECT_NEAR(actual.curve[i].train_loss, expected.curve[i].train_loss,
                share * expected.curve[i].train_loss)
        << "step " << i;
  }
  EXPECT_NEAR(actual.eval_loss, expected.eval_loss, share * expected.eval_loss);
}

inline void expect_equal_weights(const std::vector<Summary>& ranks) {
  for (const Summary& rank : ranks) EXPECT_EQ(rank.weights_hash, ranks[0].weights_hash);
}

/// Returns a job on small data in `directory`, with steps at uneven ends of epochs. Link costs are
/// the defaults, because measuring them in every job takes time and varies on a busy machine.
inline Config small_job(const std::string& model, const TemporaryDirectory& directory) {
  Config config = default_config(built_in_catalog(), model);
  config.runtime.calibrate = "off";
  config.seed = 5;
  config.warmup_steps = 5;
  config.log_every = 1;
  config.eval_every = 0;
  if (model == "gpt") {
    config.data = directory.write("text", small_text(3000));
    config.layers = 2;
    config.width = 16;
    config.heads = 2;
    config.context = 12;
    config.lr = 1e-2f;
  } else if (model == "matrix-factorization") {
    directory.write("ratings.csv", small_ratings(203));
    config.data = directory.path();
    config.width = 6;
    config.lr = 3e-2f;
  } else if (model == "bert") {
    config.data = directory.write("texts.csv", small_labelled_texts(203));
    config.format = "csv";
    config.layers = 1;
    config.width = 8;
    config.heads = 2;
    config.max_length = 12;
    config.min_count = 1;
    config.lr = 1e-2f;
  } else if (model == "embedding-bag" || model == "lstm") {
    config.data = directory.write("texts.csv", small_labelled_texts(203));
    config.format = "csv";
    config.width = 6;
    config.min_count = 1;
    config.lr = 3e-2f;
  } else {
    write_small_images(directory, 203, 50);
    config.data = directory.path();
    config.hidden = 24;
  }
  return config;
}

/// Returns a small job of mlp with SGD, which hardly amplifies differences.
inline Config small_sgd_job(const TemporaryDirectory& directory, float lr, std::size_t steps,
                            std::size_t batch) {
  Config config = small_job("mlp", directory);
  config.optimizer = "sgd";
  config.lr = lr;
  config.steps = steps;
  config.batch = batch;
  return config;
}

}  // namespace kolo::trainer
