# /etc/profile.d/zz-vgpu-notice.sh: whoever has been given CUDA_VISIBLE_DEVICES="" by an earlier file here, by PAM or by
# systemd finds the notice before the driver. Nobody else's environment changes, and a nested shell adds nothing again.
if [ "${CUDA_VISIBLE_DEVICES-unset}" = "" ] && [ -e /usr/lib/vgpu/notice/libcuda.so.1 ]; then
  case ":${LD_LIBRARY_PATH-}:" in
    *:/usr/lib/vgpu/notice:*) ;;
    *)
      LD_LIBRARY_PATH="/usr/lib/vgpu/notice${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
      export LD_LIBRARY_PATH
      ;;
  esac
fi
