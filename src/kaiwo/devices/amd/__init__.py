"""AMD GPUs, from the files of the kernel and the JSON of AMD's tools. No library is needed."""
