#pragma once

#include "trainer/models/weight_layout.h"

namespace kolo::trainer {

/// That of the published weights of GPT-2, for a Gpt with learned positions: matrices of blocks are
/// [inputs, outputs], and the output table is there if it is not the embedding's.
///
/// Source: GPT2LMHeadModel in https://github.com/huggingface/transformers, whose files begin names
///         with "transformer.", and the files of https://huggingface.co/openai-community/gpt2,
///         which do not.
WeightLayout gpt2_layout();

}  // namespace kolo::trainer
