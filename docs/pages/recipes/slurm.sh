#!/usr/bin/env bash
#SBATCH --job-name=samite
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --time=00:10:00
# Starts PROGRAM [ARGUMENTS] as the ranks of a job: sbatch slurm.sh PROGRAM [ARGUMENTS]
set -euo pipefail

# For the log: what would stand in the way on this node.
samite doctor || true

# The network between the nodes, by its name, if there are several:
# export SAMITE_INTERFACE=ib0
exec srun --mpi=pmi2 "$@"
