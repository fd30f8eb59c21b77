"""Worker processes as vgpud sees them: started, kept ready, reaped."""
