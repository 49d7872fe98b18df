#!/usr/bin/env bash
#SBATCH --job-name=samite
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --time=00:10:00
# As slurm.sh, but failed ranks are restarted: sbatch slurm-survive.sh PROGRAM [ARGUMENTS]
set -euo pipefail

hosts=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | sed "s/\$/:$SLURM_NTASKS_PER_NODE/" | paste -sd,)
# One task on each node is the remote shell. With --overlap it takes no share of the allocation. It is not bound to one
# core, because the ranks would share that core.
exec samite run -n "$SLURM_NTASKS" --hosts "$hosts" \
    --ssh 'srun --overlap --cpu-bind=none --nodes=1 --ntasks=1 --nodelist' --on-failure restart -- "$@"
