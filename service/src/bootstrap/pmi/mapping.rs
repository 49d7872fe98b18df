//! The ranks of each host, as launchers of the PMI family list them in `PMI_process_mapping`.
//!
//! `(vector,(FIRST,HOSTS,RANKS),…)`: from host FIRST on, each of HOSTS hosts takes RANKS consecutive ranks. The blocks
//! repeat until all ranks have a host (MPICH's `src/pm/hydra/lib/tools/bootstrap`, and Slurm's `pack_process_mapping`).

use samite_control::Place;

/// Returns the [`Place`] of rank `rank` in a job of `size` ranks. Returns `None` if the text is malformed, or if the
/// job has no such rank.
pub(super) fn place(mapping: &str, rank: u32, size: u32) -> Option<Place> {
    let blocks = parse(mapping)?;
    let hosts: Vec<u32> = blocks
        .iter()
        .cycle()
        .flat_map(|block| {
            (0..block.hosts).flat_map(move |host| {
                std::iter::repeat_n(block.first.saturating_add(host), block.ranks as usize)
            })
        })
        .take(size as usize)
        .collect();
    let host = *hosts.get(rank as usize)?;
    let neighbours = hosts.iter().filter(|&&other| other == host).count() as u32;
    let mut distinct = hosts;
    distinct.sort_unstable();
    distinct.dedup();
    Some(Place { host, hosts: distinct.len() as u32, neighbours, address: None })
}

struct Block {
    first: u32,
    hosts: u32,
    ranks: u32,
}

/// Returns the blocks of a mapping. Returns `None` if the text is malformed, or if a block has no host or no rank.
fn parse(mapping: &str) -> Option<Vec<Block>> {
    let blocks = mapping.strip_prefix("(vector,(")?.strip_suffix("))")?;
    let block = |text: &str| {
        let mut numbers = text.split(',').map(|number| number.trim().parse::<u32>().ok());
        let block = Block { first: numbers.next()??, hosts: numbers.next()??, ranks: numbers.next()?? };
        (numbers.next().is_none() && block.hosts > 0 && block.ranks > 0).then_some(block)
    };
    blocks.split("),(").map(block).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_laid_out_in_order_and_again() {
        let at = |mapping, rank, size| {
            let Place { host, hosts, neighbours, .. } = place(mapping, rank, size)?;
            Some((host, hosts, neighbours))
        };
        // Hydra's text for one host, for any number of ranks.
        assert_eq!(at("(vector,(0,1,1))", 3, 4), Some((0, 1, 4)));
        assert_eq!(at("(vector,(0,1,4))", 3, 4), Some((0, 1, 4)));
        assert_eq!(at("(vector,(0,2,2))", 1, 4), Some((0, 2, 2)));
        assert_eq!(at("(vector,(0,2,2))", 2, 4), Some((1, 2, 2)));
        assert_eq!(at("(vector,(0,2,1),(2,1,3))", 1, 5), Some((1, 3, 1)));
        assert_eq!(at("(vector,(0,2,1),(2,1,3))", 4, 5), Some((2, 3, 3)));
        // Round robin.
        assert_eq!(at("(vector,(0,2,1))", 3, 5), Some((1, 2, 2)));
        for nonsense in
            ["", "(vector,0)", "(vector,(0,0,1))", "(vector,(0,1,0))", "(vector,(0,1))", "(vector,(1,2,3,4))"]
        {
            assert_eq!(at(nonsense, 0, 1), None, "{nonsense}");
        }
        assert_eq!(at("(vector,(4294967295,4294967295,4294967295))", 0, 1), Some((u32::MAX, 1, 1)));
    }
}
