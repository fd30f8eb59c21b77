#include "vgs_objects.h"
#include "vgs_coredump.h"
#include <stdlib.h>

static void kernel_fini(void *object) {
  struct vgs_kernel *kernel = object;
  free(kernel->name);
  free(kernel->params);
  free(kernel->attributes);
  free(kernel->reason);
  kernel->name = NULL;
  kernel->params = NULL;
  kernel->attributes = NULL;
  kernel->reason = NULL;
  kernel->described = 0;
}

static void library_fini(void *object) {
  struct vgs_library *library = object;
  free(library->reason);
  library->reason = NULL;
}

static void link_fini(void *object) {
  struct vgs_link *link = object;
  for (struct vgs_link_input *input = link->inputs, *next; input; input = next) {
    next = input->next;
    free(input->data);
    free(input);
  }
  free(link->image);
  link->inputs = NULL;
  link->image = NULL;
}

static void context_fini(void *object) {
  struct vgs_context *context = object;
  for (struct vgs_cls_entry *entry = context->cls, *next; entry; entry = next) {
    next = entry->next;
    free(entry);
  }
  context->cls = NULL;
  vgs_coredump_destroy(context);
}

static void graph_exec_fini(void *object) { vgs_works_clear(&((struct vgs_graph_exec *)object)->works); }

/* cuGraphDestroy destroys the nodes' objects, because the locks of other kinds cannot be taken here. */
static void graph_fini(void *object) {
  struct vgs_graph *graph = object;
  free(graph->nodes);
  graph->nodes = NULL;
  vgs_works_clear(&graph->works);
}

static void graph_node_fini(void *object) {
  struct vgs_graph_node *node = object;
  free(node->pointers);
  free(node->block);
  free(node->copy);
  free(node->bodies);
  node->pointers = NULL;
  node->block = NULL;
  node->copy = NULL;
  node->bodies = NULL;
}

const struct vgs_object_type vgs_object_types[VGW_KIND_COUNT] = {
    [VGW_KIND_CONTEXT] = {sizeof(struct vgs_context), context_fini},
    [VGW_KIND_STREAM] = {sizeof(struct vgs_stream), NULL},
    [VGW_KIND_EVENT] = {sizeof(struct vgs_event), NULL},
    [VGW_KIND_IPC_EVENT] = {sizeof(struct vgs_ipc_event), NULL},
    [VGW_KIND_MODULE] = {sizeof(struct vgs_module), NULL},
    [VGW_KIND_LIBRARY] = {sizeof(struct vgs_library), library_fini},
    [VGW_KIND_FUNCTION] = {sizeof(struct vgs_kernel), kernel_fini},
    [VGW_KIND_KERNEL] = {sizeof(struct vgs_kernel), kernel_fini},
    [VGW_KIND_MEMPOOL] = {sizeof(struct vgs_pool), NULL},
    [VGW_KIND_GRAPH] = {sizeof(struct vgs_graph), graph_fini},
    [VGW_KIND_GRAPH_NODE] = {sizeof(struct vgs_graph_node), graph_node_fini},
    [VGW_KIND_ALLOCATION] = {sizeof(struct vgs_allocation), NULL},
    [VGW_KIND_GRAPH_EXEC] = {sizeof(struct vgs_graph_exec), graph_exec_fini},
    [VGW_KIND_ARRAY] = {sizeof(struct vgs_array), NULL},
    [VGW_KIND_MIPMAP] = {sizeof(struct vgs_mipmap), NULL},
    [VGW_KIND_TEXREF] = {sizeof(struct vgs_object), NULL},
    [VGW_KIND_SURFREF] = {sizeof(struct vgs_object), NULL},
    [VGW_KIND_RESOURCE_DESC] = {sizeof(struct vgs_object), NULL},
    [VGW_KIND_GREEN] = {sizeof(struct vgs_green), NULL},
    [VGW_KIND_LINK] = {sizeof(struct vgs_link), link_fini},
};
