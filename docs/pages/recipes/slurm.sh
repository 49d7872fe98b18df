#!/usr/bin/env bash
#SBATCH --job-name=samite
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --time=00:10:00
# Starts PROGRAM [ARGUMENTS] as the ranks of a job: sbatch slurm.sh PROGRAM [ARGUMENTS]
set -euo pipefail

# Writes problems of this node to the log.
samite doctor || true

# If the nodes have several networks, select one by its name:
# export SAMITE_INTERFACE=ib0
exec srun --mpi=pmi2 "$@"
