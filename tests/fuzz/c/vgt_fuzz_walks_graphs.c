/* Walks of graphs; each call may fail, as the opening may have. */
#include "vgt_fuzz.h"
#include "vgt_fuzz_directed.h"
#include "vgt_fuzz_walks_parts.h"
#include "vgw_records.h"
#include "vgw_wire.h"

static void name_nodes(int fd, uint32_t graph, uint32_t first, uint32_t count) {
  uint64_t answer[8];
  struct {
    struct vgw_req_cuGraphGetNodes request;
    uint32_t ids[8];
  } names = {{.hGraph = graph, .ids_nbytes = 4 * count}, {0}};
  for (uint32_t i = 0; i < count; i++)
    names.ids[i] = first + i;
  vgt_ask(fd, VGW_OP_cuGraphGetNodes, &names, (uint32_t)sizeof names.request + 4 * count, answer, sizeof answer);
}

/* A copy of two vgt_walk_halves, of which one is the client's internal host function: its nodes are one for the
 * program, so that nothing can depend on the half. And a whole copy, which is a graph with a host function of the
 * client. */
void vgt_walk_halves(int fd) {
  const uint32_t split = vgt_walk_first_id + 100, whole = split + 1, outer = split + 2, inner = vgt_walk_first_id + 200;
  uint64_t answer[64];
  VGT_ASK(fd, cuGraphCreate, .phGraph = split);
  VGT_ASK(fd, cuGraphAddHostNode, .phGraphNode = inner, .hGraph = split,
          .callback = VGW_CALLBACK_OF_GRAPH | VGW_CALLBACK_INTERNAL | 1);
  VGT_ASK(fd, cuGraphAddMemcpyNode, .dstAddress = vgt_addresses[0], .dstPitch = 8, .dstRows = 1,
          .srcAddress = vgt_addresses[1], .srcPitch = 8, .srcRows = 1, .width = 8, .height = 1, .depth = 1,
          .phGraphNode = inner + 1, .hGraph = split, .ctx = 1);
  name_nodes(fd, split, inner + 1, 1); /* the id that it has */
  name_nodes(fd, split, inner + 2, 2); /* there is one */
  name_nodes(fd, split, inner + 3, 1);
  struct {
    struct vgw_req_cuGraphAddEmptyNode request;
    uint32_t dependencies[2];
  } after = {{.numDependencies = 1, .phGraphNode = inner + 4, .hGraph = split}, {inner + 3, 0}};
  vgt_ask(fd, VGW_OP_cuGraphAddEmptyNode, &after, sizeof after, answer, sizeof answer);
  VGT_ASK(fd, cuGraphCreate, .phGraph = whole);
  VGT_ASK(fd, cuGraphAddHostNode, .phGraphNode = inner + 5, .hGraph = whole,
          .callback = VGW_CALLBACK_OF_GRAPH | VGW_CALLBACK_INTERNAL | VGW_CALLBACK_WHOLE_COPY | 1);
  VGT_ASK(fd, cuGraphCreate, .phGraph = outer);
  VGT_ASK(fd, cuGraphAddChildGraphNode, .phGraphNode = inner + 6, .hGraph = outer, .childGraph = whole);
  VGT_ASK(fd, cuGraphNodeGetType, .hNode = inner + 6);
  name_nodes(fd, outer, inner + 6, 1);
  VGT_ASK(fd, cuGraphMemcpyNodeGetParams, .hNode = inner + 6);
  VGT_ASK(fd, vgpuGraphSetHalves, .hNode = inner + 6, .callback = VGW_CALLBACK_OF_GRAPH | 2);
  struct {
    struct vgw_req_cuGraphAddMemcpyNode request;
    uint32_t dependencies[2];
  } half = {{.dstAddress = vgt_addresses[0],
             .dstPitch = 8,
             .dstRows = 1,
             .srcAddress = vgt_addresses[1],
             .srcPitch = 8,
             .srcRows = 1,
             .width = 8,
             .height = 1,
             .depth = 1,
             .phGraphNode = inner + 7,
             .hGraph = whole,
             .ctx = 1,
             .numDependencies = 1},
            {inner + 5, 0}};
  vgt_ask(fd, VGW_OP_cuGraphAddMemcpyNode, &half, sizeof half, answer, sizeof answer);
  VGT_ASK(fd, cuGraphAddChildGraphNode, .phGraphNode = inner + 8, .hGraph = outer, .childGraph = whole);
  for (uint32_t turn = 0; turn < 6; turn++) /* in both directions, and of nodes without such halves */
    VGT_ASK(fd, vgpuGraphSetHalves, .hNode = turn < 4 ? inner + 8 : inner + turn,
            .callback = VGW_CALLBACK_OF_GRAPH | VGW_CALLBACK_INTERNAL | VGW_CALLBACK_WHOLE_COPY | 2,
            .to_host = turn & 1, .dstAddress = vgt_addresses[0], .dstPitch = 8, .dstRows = 1,
            .srcAddress = vgt_addresses[1], .srcPitch = 8, .srcRows = 1, .width = turn < 3 ? 8 : 0, .height = 1,
            .depth = 1);
}

/* Graphs that move into nodes, but not into themselves and not twice; nodes that take each other's place. */
void vgt_walk_moved(int fd) {
  const uint32_t first = vgt_walk_first_id + 120, second = first + 1, third = first + 2, node = vgt_walk_first_id + 400;
  uint64_t answer[64];
  for (uint32_t graph = first; graph <= third; graph++) {
    VGT_ASK(fd, cuGraphCreate, .phGraph = graph);
    VGT_ASK(fd, cuGraphAddEmptyNode, .phGraphNode = node + graph - first, .hGraph = graph);
  }
  VGT_ASK(fd, vgpuGraphMoveChild, .phGraphNode = node + 10, .hGraph = first, .childGraph = first);
  VGT_ASK(fd, vgpuGraphMoveChild, .phGraphNode = node + 11, .hGraph = first, .childGraph = second);
  VGT_ASK(fd, vgpuGraphMoveChild, .phGraphNode = node + 12, .hGraph = second, .childGraph = first);
  VGT_ASK(fd, vgpuGraphMoveChild, .phGraphNode = node + 13, .hGraph = third, .childGraph = second);
  VGT_ASK(fd, vgpuGraphMoveChild, .phGraphNode = node + 14, .hGraph = second, .childGraph = third);
  VGT_ASK(fd, cuGraphDestroy, .hGraph = second);
  VGT_ASK(fd, vgpuGraphSwapNodes, .hNode = node, .other = node + 11);
  VGT_ASK(fd, vgpuGraphSwapNodes, .hNode = node, .other = node);
  VGT_ASK(fd, vgpuGraphSwapNodes, .hNode = node, .other = node + 1); /* of another graph */
  VGT_ASK(fd, cuGraphInstantiateWithFlags, .phGraphExec = vgt_walk_first_id + 40, .hGraph = first);
  VGT_ASK(fd, cuGraphDestroyNode, .hNode = node + 11);
  name_nodes(fd, second, node + 20, 1);
  VGT_ASK(fd, cuGraphDestroyNode, .hNode = node); /* with both graphs */
  name_nodes(fd, third, node + 21, 1);
  VGT_ASK(fd, cuGraphDestroy, .hGraph = first);
}

/* A copy between arrays that a stream captures, and its node's parameters; a graph's own memory. */
void vgt_walk_captured(int fd) {
  const uint32_t graph = vgt_walk_first_id + 110, own = graph + 1, node = vgt_walk_first_id + 300;
  uint64_t answer[64];
  VGT_ASK(fd, vgpuCaptureBegin, .hStream = 1, .graph = graph);
  VGT_ASK(fd, vgpuArrayCopy, .dstArray = 1, .srcArray = 2, .width = 8, .height = 1, .depth = 1, .hStream = 1);
  VGT_ASK(fd, vgpuCaptureChild, .hStream = 1, .hGraph = 1, .childGraph = 1); /* another graph */
  VGT_ASK(fd, vgpuCaptureDependencies, .hStream = 1, .hGraph = graph);
  VGT_ASK(fd, vgpuCaptureEnd, .hStream = 1);
  name_nodes(fd, graph, node, 1);
  VGT_ASK(fd, vgpuCaptureBegin, .hStream = 1, .graph = graph + 3);
  VGT_ASK(fd, vgpuCaptureChild, .hStream = 1, .hGraph = graph + 3, .childGraph = graph);
  VGT_ASK(fd, vgpuCaptureEnd, .hStream = 1);
  VGT_ASK(fd, cuGraphMemcpyNodeGetParams, .hNode = node);
  VGT_ASK(fd, cuGraphCreate, .phGraph = own);
  for (uint32_t i = 1; i <= 2; i++) {
    struct {
      struct vgw_req_cuGraphAddMemAllocNode request;
      CUmemAccessDesc access;
    } add = {.request = {.bytesize = 4096, .phGraphNode = node + i, .hGraph = own}};
    add.request.poolProps.allocType = add.request.poolProps.location.type = 1;
    vgt_ask(fd, VGW_OP_cuGraphAddMemAllocNode, &add, sizeof add, answer, sizeof answer);
    VGT_ASK(fd, cuGraphAddMemcpyNode, .dstAddress = answer[0] + 8, .dstPitch = 8, .dstRows = 1,
            .srcAddress = vgt_addresses[1], .srcPitch = 8, .srcRows = 1, .width = 8, .height = 1, .depth = 1,
            .phGraphNode = node + 10 + i, .hGraph = own, .ctx = 1);
  }
  VGT_ASK(fd, cuGraphAddMemcpyNode, .dstAddress = 8, .dstPitch = 8, .dstRows = 1, .srcAddress = 8, .srcPitch = 8,
          .srcRows = 1, .depth = 1, .phGraphNode = node + 20, .hGraph = own, .ctx = 1); /* nothing */
  VGT_ASK(fd, cuStreamBeginCapture_v2, .hStream = 2);
  VGT_ASK(fd, cuStreamEndCapture, .hStream = 2, .phGraph = own + 1);
}
