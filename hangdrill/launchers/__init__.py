"""Starting the ranks: one small protocol, one file for each launcher. `drill.supervise` owns and ends the processes."""
