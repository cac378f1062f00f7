#include "comm/collective/algorithm.h"

namespace kolo {
namespace {

// The parts of a padded extent are equal, which is what the device's own library asks for. A rank
// alone on its node has nothing to launch.
Range part(const ScheduleBuilder& builder, const Stage& stage) {
  const Extent own =
      part_of(stage.extent, stage.size(), stage.position(builder.rank()), builder.layout().dtype);
  return builder.bucket(own.offset, own.count);
}

Range whole(const ScheduleBuilder& builder, const Stage& stage) {
  return builder.bucket(stage.extent.offset, stage.extent.count);
}

void reduce_scatter(ScheduleBuilder& builder, const Stage& stage) {
  if (stage.size() == 1) return;
  builder.native(NativeOp::kReduceScatter, NativeGroup::kNode, part(builder, stage),
                 whole(builder, stage), stage.finishes);
}

void all_gather(ScheduleBuilder& builder, const Stage& stage) {
  if (stage.size() > 1) {
    builder.native(NativeOp::kAllGather, NativeGroup::kNode, whole(builder, stage),
                   part(builder, stage));
  }
  builder.deliver(whole(builder, stage), stage.sink);
}

}  // namespace

const ScatterGather kNative{reduce_scatter, all_gather};

void append_native(ScheduleBuilder& builder, const Stage& stage) {
  const Range all = whole(builder, stage);
  if (stage.size() > 1) {
    builder.native(NativeOp::kAllReduce, NativeGroup::kWorld, all, all, stage.finishes);
  }
  builder.deliver(all, stage.sink);
}

}  // namespace kolo
