"""Names that PTX itself defines, up to PTX ISA 9.4. Source: PTX ISA reference, chapters 9 and 10.

An opcode outside OPCODES is a syntax error (218); one inside it that no emitter handles is unsupported (801)."""

OPCODES = frozenset(  # one word each
    """
    abs activemask add addc alloca and applypriority atom bar barrier bfe bfi bfind bmsk bra brev brkpt brx call
    clusterlaunchcontrol clz cnot copysign cos cp createpolicy cvt cvta discard div dp2a dp4a elect ex2 exit
    fence fma fns getctarank griddepcontrol isspacep istypep ld ldmatrix ldu lg2 lop3 mad mad24 madc mapa match
    max mbarrier membar min mma mov movmatrix mul mul24 multimem nanosleep neg not or pmevent popc prefetch
    prefetchu prmt rcp red redux rem ret rsqrt sad selp set setmaxnreg setp shf shfl shl shr sin slct sqrt st
    stackrestore stacksave stmatrix sub subc suld suq sured sust szext tanh tcgen05 tensormap testp tex tld4
    trap txq vabsdiff vabsdiff2 vabsdiff4 vadd vadd2 vadd4 vavrg2 vavrg4 vmad vmax vmax2 vmax4 vmin vmin2 vmin4
    vote vset vset2 vset4 vshl vshr vsub vsub2 vsub4 wgmma wmma xor
    """.split()  # noqa: SIM905
)

_XYZ = [
    f"%{name}.{axis}"
    for name in ("tid", "ntid", "ctaid", "nctaid", "clusterid", "nclusterid", "cluster_ctaid", "cluster_nctaid")
    for axis in "xyzw"
]

SPECIAL_REGISTERS = frozenset(
    """
    %aggr_smem_size %clock %clock64 %clock_hi %cluster_ctarank %cluster_nctarank %current_graph_exec
    %dynamic_smem_size %globaltimer %globaltimer_hi %globaltimer_lo %gridid %is_explicit_cluster %laneid
    %lanemask_eq %lanemask_ge %lanemask_gt %lanemask_le %lanemask_lt %nsmid %nwarpid
    %reserved_smem_offset_0 %reserved_smem_offset_1 %reserved_smem_offset_begin %reserved_smem_offset_cap
    %reserved_smem_offset_end %smid %total_smem_size %warpid WARP_SZ
    """.split()  # noqa: SIM905
    + _XYZ
    + [f"%envreg{i}" for i in range(32)]
    + [f"%pm{i}" for i in range(8)]
)

KNOWN_VERSION = (9, 4)
"""The newest PTX ISA whose instructions were read. Texts of later ones are tried: what they add is refused where it is
met, by its name."""
