// Operations on rows: norms and codes, sums, embeddings, rotary angles, routing.
#pragma once

#include "cuda/common.cuh"
#include "cuda/launch.h"

namespace strata::cuda {

void norm(Queue& queue, Rows x, const float* weight, float eps, Rows values, Codes codes);
void add_norm(Queue& queue, Rows residual, Rows x, const float* weight, float eps);
void quantise(Queue& queue, Rows x, Codes codes);
void add(Queue& queue, Rows to, Rows from);
void scale(Queue& queue, Rows x, float factor, const float* weight);
void soft_cap(Queue& queue, Rows x, float cap);
/// Rows of a gather, by value: what a call wants is part of its launches.
inline constexpr int kGather = 64;
struct GatherList {
    int32_t row[kGather];
};
void gather(Queue& queue, const GatherList& which, int count, Rows in, Rows out);
void embed(Queue& queue, const Step& step, const Matrix& table, float scale, Rows out);
/// frequency: [pairs] double; axis: [pairs].
void rope_table(Queue& queue, const Step& step, const double* frequency, const uint8_t* axis, int pairs, Rows out);
void route(Queue& queue, Rows logits, const RouteSpec& spec, Routing out);

}  // namespace strata::cuda
