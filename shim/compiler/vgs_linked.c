#include "vgs_linked.h"
#include <elf.h>
#include <stdlib.h>
#include <string.h>

enum {
  MACHINE_CUDA = 190,
  OS_ABI_CUDA = 0x41,
  ABI_VERSION_CUDA = 8,
  FLAGS_CUDA = 0x06000004,
  SECTIONS = 3,
  ALIGNMENT = 16
};
static const char names[] = "\0.vgpu.ptx\0.shstrtab";
enum { NAME_PTX = 1, NAME_STRINGS = 11 };

char *vgs_linked_image(const struct vgs_text *texts, int sm, size_t *nbytes) {
  size_t content = 0;
  for (const struct vgs_text *text = texts; text; text = text->next)
    content += text->nbytes + 1;
  size_t first = texts && !texts->next ? 0 : sizeof(Elf64_Ehdr);
  size_t strings = first + content, table = (strings + sizeof names + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1);
  *nbytes = first ? table + SECTIONS * sizeof(Elf64_Shdr) : content;
  char *image = calloc(1, *nbytes);
  if (!image)
    return NULL;
  char *at = image + first;
  for (const struct vgs_text *text = texts; text; at += text->nbytes + 1, text = text->next)
    memcpy(at, text->bytes, text->nbytes);
  if (!first)
    return image;
  Elf64_Ehdr header = {.e_type = ET_EXEC,
                       .e_machine = MACHINE_CUDA,
                       .e_version = EV_CURRENT,
                       .e_shoff = table,
                       .e_flags = FLAGS_CUDA | (unsigned int)sm << 8,
                       .e_ehsize = sizeof header,
                       .e_shentsize = sizeof(Elf64_Shdr),
                       .e_shnum = SECTIONS,
                       .e_shstrndx = SECTIONS - 1};
  memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  header.e_ident[EI_VERSION] = EV_CURRENT;
  header.e_ident[EI_OSABI] = OS_ABI_CUDA;
  header.e_ident[EI_ABIVERSION] = ABI_VERSION_CUDA;
  const Elf64_Shdr sections[SECTIONS] = {
      {0},
      {.sh_name = NAME_PTX, .sh_type = SHT_PROGBITS, .sh_offset = first, .sh_size = content, .sh_addralign = 1},
      {.sh_name = NAME_STRINGS,
       .sh_type = SHT_STRTAB,
       .sh_offset = strings,
       .sh_size = sizeof names,
       .sh_addralign = 1}};
  memcpy(image, &header, sizeof header);
  memcpy(image + strings, names, sizeof names);
  memcpy(image + table, sections, sizeof sections);
  return image;
}
