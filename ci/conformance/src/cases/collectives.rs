//! Collective operations: results, roots, orders, in-place forms, and the effects of failures.

use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};

use samite::reduction::{
    BinnedSum, BitAnd, BitOr, BitXor, ComplexF64, LocatedF64, LocatedI32, LogicalAnd, LogicalOr, LogicalXor,
    Max, MaxLocation, Min, MinLocation, Product, ReduceOp, Sum, commuting, in_rank_order, reproducible,
};
use samite::{
    CancelToken, Comm, Error, Failed, InPlace, Mode, Owned, Rank, Request, Root, Source, Tag, consecutive,
    start_all,
};

use crate::case::{Cases, Job, SHORT, bytes, expect_error};

pub(crate) fn add(cases: &mut Cases) {
    barriers(cases);
    broadcasts(cases);
    gathers_and_scatters(cases);
    exchanges(cases);
    blocks_of_different_lengths(cases);
    reductions(cases);
    operations(cases);
    scans(cases);
    nonblocking(cases);
    persistent(cases);
    mixtures(cases);
    correctness(cases);
    ends(cases);
}

/// The numbers of ranks with which the cases run: powers of two, for which some algorithms differ, and other numbers.
const SIZES: [u32; 4] = [1, 2, 3, 5];

fn barriers(cases: &mut Cases) {
    cases.section("6.3");
    for n in SIZES {
        cases.add(
            format!("barrier.{n}"),
            n,
            "no rank leaves a barrier before all ranks have entered it",
            |job| {
                let last = job.size() - 1;
                for round in 0..10_u64 {
                    if job.rank() == last {
                        // A synchronous send ends when its message is received. So the last rank enters the barrier
                        // only after the other ranks have received its message.
                        let comm = job.comm.with_mode(Mode::Synchronous);
                        (0..last).try_for_each(|rank| comm.send(&[round], Rank(rank), 1))?;
                        job.comm.barrier()?;
                        continue;
                    }
                    let receive = job.comm.irecv(vec![99_u64], Rank(last), 1)?;
                    job.comm.barrier()?;
                    // A receive that has matched its message cannot be cancelled.
                    receive.cancel();
                    assert_eq!(receive.wait()?.buffer, [round]);
                }
                Ok(())
            },
        );
    }
}

fn broadcasts(cases: &mut Cases) {
    cases.section("6.4");
    for n in SIZES {
        cases.add(
            format!("bcast.{n}"),
            n,
            "all ranks get the root's data, for each root and length",
            |job| {
                for root in 0..job.size() {
                    for len in [0, 1, 1000, 20_000, job.long] {
                        let data = bytes(u64::from(root), len);
                        let mut buffer = if job.rank() == root { data.clone() } else { vec![0xee; len] };
                        job.comm.bcast(&mut buffer, Rank(root))?;
                        assert!(buffer == data, "root {root}, {len} bytes");
                    }
                }
                Ok(())
            },
        );
    }
}

fn gathers_and_scatters(cases: &mut Cases) {
    cases.section("6.5");
    for n in SIZES {
        cases.add(format!("gather.{n}"), n, "the root gets the data of all ranks in their order", |job| {
            for (root, len) in (0..job.size()).flat_map(|root| [0, 1, 3000].map(|len| (root, len))) {
                let all: Vec<u8> = (0..job.size()).flat_map(|rank| bytes(rank.into(), len)).collect();
                let mine = bytes(job.rank().into(), len);
                let mut output = vec![0; if job.rank() == root { all.len() } else { 0 }];
                job.comm.gather(&mine, &mut output, Rank(root))?;
                assert!(job.rank() != root || output == all);
                if job.rank() == root {
                    let start = len * root as usize;
                    output.fill(0xee);
                    output[start..start + len].copy_from_slice(&mine);
                    job.comm.gather_in_place(&mut output)?;
                    assert!(output == all);
                } else {
                    job.comm.gather(&mine, &mut [], Rank(root))?;
                }
            }
            Ok(())
        });
    }
    cases.section("6.6");
    for n in SIZES {
        cases.add(format!("scatter.{n}"), n, "each rank gets its block of the root's data", |job| {
            for (root, len) in (0..job.size()).flat_map(|root| [0, 1, 3000].map(|len| (root, len))) {
                let all = bytes(root.into(), len * job.size() as usize);
                let input: &[u8] = if job.rank() == root { &all } else { &[] };
                let mine = &all[len * job.rank() as usize..][..len];
                let mut output = vec![0; len];
                job.comm.scatter(input, &mut output, Rank(root))?;
                assert!(output == mine);
                if job.rank() == root {
                    job.comm.scatter_in_place(&all)?;
                } else {
                    output.fill(0xee);
                    job.comm.scatter(&[], &mut output, Rank(root))?;
                    assert!(output == mine);
                }
            }
            Ok(())
        });
    }
}

fn exchanges(cases: &mut Cases) {
    cases.section("6.7");
    for n in SIZES {
        cases.add(format!("allgather.{n}"), n, "all ranks get the data of all ranks in their order", |job| {
            for len in [0, 1, 3000, 100_000] {
                let all: Vec<u8> = (0..job.size()).flat_map(|rank| bytes(rank.into(), len)).collect();
                let mine = bytes(job.rank().into(), len);
                let mut output = vec![0; all.len()];
                job.comm.allgather(&mine, &mut output)?;
                assert!(output == all, "{len} bytes");
                output.fill(0xee);
                output[len * job.rank() as usize..][..len].copy_from_slice(&mine);
                job.comm.allgather_in_place(&mut output)?;
                assert!(output == all, "{len} bytes in place");
            }
            Ok(())
        });
    }
    cases.section("6.8");
    for n in [1, 2, 3, 5, 8] {
        cases.add(format!("alltoall.{n}"), n, "each rank gets a block from each rank", |job| {
            for len in [0, 1, 100, 3000] {
                let sent_by = |rank: u32| bytes(rank.into(), len * job.size() as usize);
                let to_me = |rank| sent_by(rank)[len * job.rank() as usize..][..len].to_vec();
                let expected: Vec<u8> = (0..job.size()).flat_map(to_me).collect();
                let mut output = vec![0; expected.len()];
                job.comm.alltoall(&sent_by(job.rank()), &mut output)?;
                assert!(output == expected, "{len} bytes");
                let mut buffer = sent_by(job.rank());
                job.comm.alltoall_in_place(&mut buffer)?;
                assert!(buffer == expected, "{len} bytes in place");
            }
            Ok(())
        });
    }
}

/// Returns the length of a rank's block in a case with different lengths.
fn varying(rank: u32, factor: usize) -> usize {
    (rank as usize + 1) % 3 * factor
}

fn blocks_of_different_lengths(cases: &mut Cases) {
    for n in SIZES {
        let rule = "each rank contributes a number of elements of its own";
        cases.section("6.5");
        cases.add(format!("gatherv.{n}"), n, rule, |job| {
            for (root, factor) in (0..job.size()).flat_map(|root| [1, 2000].map(|factor| (root, factor))) {
                let blocks = consecutive((0..job.size()).map(|rank| varying(rank, factor)));
                let of = |rank: u32| bytes(rank.into(), varying(rank, factor));
                let all: Vec<u8> = (0..job.size()).flat_map(of).collect();
                let mut output = vec![0; if job.rank() == root { all.len() } else { 0 }];
                job.comm.gatherv(&of(job.rank()), &mut output, &blocks, Rank(root))?;
                assert!(job.rank() != root || output == all);
            }
            Ok(())
        });
        cases.section("6.6");
        cases.add(format!("scatterv.{n}"), n, "each rank gets a block of its own length", |job| {
            for (root, factor) in (0..job.size()).flat_map(|root| [1, 2000].map(|factor| (root, factor))) {
                let blocks = consecutive((0..job.size()).map(|rank| varying(rank, factor)));
                let all = bytes(root.into(), 3 * factor * job.size() as usize);
                let input: &[u8] = if job.rank() == root { &all } else { &[] };
                let mut output = vec![0; varying(job.rank(), factor)];
                job.comm.scatterv(input, &blocks, &mut output, Rank(root))?;
                assert!(output == all[blocks[job.rank() as usize].clone()]);
            }
            Ok(())
        });
        cases.section("6.7");
        cases.add(format!("allgatherv.{n}"), n, rule, |job| {
            for factor in [1, 20_000] {
                let blocks = consecutive((0..job.size()).map(|rank| varying(rank, factor)));
                let of = |rank: u32| bytes(rank.into(), varying(rank, factor));
                let all: Vec<u8> = (0..job.size()).flat_map(of).collect();
                let mut output = vec![0; all.len()];
                job.comm.allgatherv(&of(job.rank()), &mut output, &blocks)?;
                assert!(output == all);
                let own = blocks[job.rank() as usize].clone();
                output.fill(0xee);
                output[own.clone()].copy_from_slice(&all[own]);
                job.comm.allgatherv_in_place(&mut output, &blocks)?;
                assert!(output == all);
            }
            Ok(())
        });
        cases.section("6.8");
        cases.add(
            format!("alltoallv.{n}"),
            n,
            "each pair of ranks exchanges blocks of its own length",
            |job| {
                for factor in [1, 3000] {
                    let len = |from: u32, to: u32| (from * 2 + to) as usize % 4 * factor;
                    let sent_by = |from| consecutive((0..job.size()).map(|to| len(from, to)));
                    let data = |from: u32| bytes(from.into(), 4 * factor * job.size() as usize);
                    let received = consecutive((0..job.size()).map(|from| len(from, job.rank())));
                    let to_me = |from| data(from)[sent_by(from)[job.rank() as usize].clone()].to_vec();
                    let expected: Vec<u8> = (0..job.size()).flat_map(to_me).collect();
                    let mut output = vec![0; expected.len()];
                    job.comm.alltoallv(&data(job.rank()), &sent_by(job.rank()), &mut output, &received)?;
                    assert!(output == expected);
                }
                Ok(())
            },
        );
        cases.section("6.10.2");
        cases.add(format!("reduce-scatterv.{n}"), n, "each rank gets a block of its own length", |job| {
            for factor in [1, 500] {
                let lens: Vec<usize> = (0..job.size()).map(|rank| varying(rank, factor)).collect();
                let blocks = consecutive(lens.iter().copied());
                let total = lens.iter().sum();
                let expected = sums(0..job.size(), total);
                let mut output = vec![0; lens[job.rank() as usize]];
                job.comm.reduce_scatterv(&numbers(job.rank(), total), &mut output, &lens, Sum)?;
                assert_eq!(output, expected[blocks[job.rank() as usize].clone()]);
            }
            Ok(())
        });
    }
}

/// Returns the elements that a rank contributes.
fn numbers(rank: u32, len: usize) -> Vec<u64> {
    bytes(rank.into(), len * 8)
        .chunks(8)
        .map(|chunk| chunk.iter().map(|byte| u64::from(*byte)).sum())
        .collect()
}

/// Returns the sums of the elements of some ranks.
fn sums(ranks: std::ops::Range<u32>, len: usize) -> Vec<u64> {
    let mut all = vec![0; len];
    for rank in ranks {
        all.iter_mut().zip(numbers(rank, len)).for_each(|(sum, number)| *sum += number);
    }
    all
}

fn reductions(cases: &mut Cases) {
    cases.section("6.9.1");
    for n in SIZES {
        cases.add(
            format!("reduce.{n}"),
            n,
            "the root gets the sums, and other ranks need no output",
            |job| {
                for (root, len) in (0..job.size()).flat_map(|root| [0, 1, 1000].map(|len| (root, len))) {
                    let (mine, expected) = (numbers(job.rank(), len), sums(0..job.size(), len));
                    let mut output = vec![0; if job.rank() == root { len } else { 0 }];
                    job.comm.reduce(&mine, &mut output, Sum, Rank(root))?;
                    assert!(job.rank() != root || output == expected);
                    if job.rank() == root {
                        let mut buffer = mine;
                        job.comm.reduce_in_place(&mut buffer, Sum)?;
                        assert_eq!(buffer, expected);
                    } else {
                        job.comm.reduce(&mine, &mut [], Sum, Rank(root))?;
                    }
                }
                Ok(())
            },
        );
    }
    cases.section("6.9.6");
    for n in SIZES {
        cases.add(format!("allreduce.{n}"), n, "all ranks get the sums", |job| {
            for len in [0, 1, 1000, 20_000] {
                let (mine, expected) = (numbers(job.rank(), len), sums(0..job.size(), len));
                let mut output = vec![0; len];
                job.comm.allreduce(&mine, &mut output, Sum)?;
                assert_eq!(output, expected);
                let mut buffer = mine;
                job.comm.allreduce_in_place(&mut buffer, Sum)?;
                assert_eq!(buffer, expected);
            }
            Ok(())
        });
    }
    cases.add("allreduce.same-bits", 5, "all ranks get the same bits of a sum of floats", |job| {
        for len in [1, 700] {
            let mine: Vec<f64> =
                numbers(job.rank(), len).iter().map(|number| 1.0 / (*number as f64 + 0.1)).collect();
            let mut output = vec![0.0; len];
            job.comm.allreduce(&mine, &mut output, Sum)?;
            let mut of_first: Vec<u64> = output.iter().map(|sum: &f64| sum.to_bits()).collect();
            let bits = of_first.clone();
            job.comm.bcast(&mut of_first, Rank(0))?;
            assert_eq!(bits, of_first);
        }
        Ok(())
    });
    cases.section("6.9.1");
    for n in SIZES {
        let what = "a reproducible sum has the same bits in every operation and for every length";
        cases.add(format!("reduce.reproducible.{n}"), n, what, |job| {
            let ranks = job.size() as usize;
            let mine = (0.1 - f64::from(job.rank() % 3)) * 1e5_f64.powi(job.rank() as i32 % 4);
            let mut expected = [0.0];
            job.comm.allreduce(&[mine], &mut expected, reproducible(Sum))?;
            let expected = expected[0].to_bits();
            for len in [ranks, 700, job.long / size_of::<f64>()].map(|len| len.next_multiple_of(ranks)) {
                let (mine, mut sums) = (vec![mine; len], vec![0.0; len]);
                job.comm.allreduce(&mine, &mut sums, reproducible(Sum))?;
                assert!(sums.iter().all(|sum| sum.to_bits() == expected));
                sums.fill(f64::from_bits(expected));
                job.comm.reduce(&mine, &mut sums, reproducible(Sum), Rank(job.size() - 1))?;
                assert!(sums.iter().all(|sum| sum.to_bits() == expected));
                let mut sums = vec![0.0; len / ranks];
                job.comm.reduce_scatter(&mine, &mut sums, reproducible(Sum))?;
                assert!(sums.iter().all(|sum| sum.to_bits() == expected));
            }
            Ok(())
        });
    }
    for n in SIZES {
        let what = "a binned sum has the same bits for every division of the numbers among the ranks";
        cases.add(format!("reduce.binned.{n}"), n, what, |job| {
            let number = |index: u32| (0.1 - f64::from(index % 7)) * 1e7_f64.powi(index as i32 % 5 - 2);
            let mut expected = [BinnedSum::new()];
            if job.rank() == 0 {
                expected[0].extend((0..999).map(number));
            }
            job.comm.bcast(&mut expected, Rank(0))?;
            for divisor in [1, 10, 400] {
                let is_mine = |index: &u32| index / divisor % job.size() == job.rank();
                let mine: BinnedSum = (0..999).rev().filter(is_mine).map(number).collect();
                let mut sum = [BinnedSum::new()];
                job.comm.allreduce(&[mine], &mut sum, Sum)?;
                assert_eq!(sum, expected);
                assert_eq!(sum[0].value().to_bits(), expected[0].value().to_bits());
                job.comm.reduce(&[mine], &mut sum, Sum, Rank(0))?;
                assert_eq!(sum, expected);
            }
            Ok(())
        });
    }
    cases.section("6.10.1");
    for n in SIZES {
        cases.add(format!("reduce-scatter.{n}"), n, "each rank gets its block of the sums", |job| {
            for len in [0, 1, 1000] {
                let total = len * job.size() as usize;
                let (mine, expected) = (numbers(job.rank(), total), sums(0..job.size(), total));
                let expected = &expected[len * job.rank() as usize..][..len];
                let mut output = vec![0; len];
                job.comm.reduce_scatter(&mine, &mut output, Sum)?;
                assert_eq!(output, expected);
                let mut buffer = mine;
                job.comm.reduce_scatter_in_place(&mut buffer, Sum)?;
                assert_eq!(&buffer[..len], expected);
            }
            Ok(())
        });
    }
}

/// Returns the elements of all ranks, combined.
fn reduced(job: &Job, mine: [i32; 2], op: impl ReduceOp<i32>) -> Result<[i32; 2], Error> {
    let mut all = [0; 2];
    job.comm.allreduce(&mine, &mut all, op)?;
    Ok(all)
}

fn operations(cases: &mut Cases) {
    cases.section("6.9.2");
    cases.add("op.integers", 3, "the predefined operations on integers", |job| {
        // At the three ranks the first element is -1, 0 and 1, and the second element is 6, 3 and 1.
        let mine = [job.rank() as i32 - 1, 6 >> job.rank()];
        assert_eq!(reduced(job, mine, Sum)?, [0, 10]);
        assert_eq!(reduced(job, mine, Product)?, [0, 18]);
        assert_eq!(reduced(job, mine, Min)?, [-1, 1]);
        assert_eq!(reduced(job, mine, Max)?, [1, 6]);
        assert_eq!(reduced(job, mine, LogicalAnd)?, [0, 1]);
        assert_eq!(reduced(job, mine, LogicalOr)?, [1, 1]);
        assert_eq!(reduced(job, mine, LogicalXor)?, [0, 1]);
        assert_eq!(reduced(job, mine, BitAnd)?, [0, 0]);
        assert_eq!(reduced(job, mine, BitOr)?, [-1, 7]);
        assert_eq!(reduced(job, mine, BitXor)?, [-1 ^ 1, 6 ^ 3 ^ 1]);
        Ok(())
    });
    cases.add("op.complex", 3, "sums and products of complex numbers", |job| {
        let mine = [ComplexF64 { re: 1.0, im: f64::from(job.rank()) }];
        let mut result = mine;
        job.comm.allreduce(&mine, &mut result, Sum)?;
        assert_eq!(result, [ComplexF64 { re: 3.0, im: 3.0 }]);
        job.comm.allreduce(&mine, &mut result, Product)?;
        assert_eq!(result, [ComplexF64 { re: -1.0, im: 3.0 }]);
        Ok(())
    });
    cases.section("6.9.4");
    cases.add("op.location", 4, "minima and maxima are found with their places", |job| {
        let mut least =
            [LocatedF64 { value: [2.0, 0.5, 0.5, 7.0][job.rank() as usize], location: job.rank().into() }];
        job.comm.allreduce_in_place(&mut least, MinLocation)?;
        assert_eq!(least, [LocatedF64 { value: 0.5, location: 1 }], "of equal values, the smaller place");
        let mut most = [LocatedI32 { value: [3, 9, 1, 9][job.rank() as usize], location: job.rank() }];
        job.comm.allreduce_in_place(&mut most, MaxLocation)?;
        assert_eq!(most, [LocatedI32 { value: 9, location: 1 }]);
        Ok(())
    });
    cases.section("6.9.5");
    for n in SIZES {
        cases.add(
            format!("op.user.{n}"),
            n,
            "an operation that does not commute has the order of ranks",
            |job| {
                // The composition of affine functions.
                let compose = || {
                    in_rank_order(|from: &[[u64; 2]], into: &mut [[u64; 2]]| {
                        for ([m, c], [n, d]) in from.iter().zip(into) {
                            (*n, *d) = (m.wrapping_mul(*n), c.wrapping_mul(*n).wrapping_add(*d));
                        }
                    })
                };
                let of = |rank: u32| [u64::from(rank) + 2, u64::from(rank) * 5 + 1];
                let all = |ranks: std::ops::Range<u32>| {
                    ranks.map(of).reduce(|[m, c], [n, d]| [m * n, c * n + d]).expect("there is a rank")
                };
                let (mine, n) = ([of(job.rank())], job.size());
                let mut result = [[0; 2]];
                job.comm.allreduce(&mine, &mut result, compose())?;
                assert_eq!(result, [all(0..n)]);
                for root in 0..n {
                    let mut result = [[0; 2]];
                    job.comm.reduce(&mine, &mut result, compose(), Rank(root))?;
                    assert!(job.rank() != root || result == [all(0..n)]);
                }
                job.comm.reduce_scatter(&vec![mine[0]; n as usize], &mut result, compose())?;
                assert_eq!(result, [all(0..n)]);
                job.comm.scan(&mine, &mut result, compose())?;
                assert_eq!(result, [all(0..job.rank() + 1)]);
                job.comm.exscan(&mine, &mut result, compose())?;
                assert!(job.rank() == 0 || result == [all(0..job.rank())]);
                Ok(())
            },
        );
    }
}

fn scans(cases: &mut Cases) {
    cases.section("6.11.1");
    for n in SIZES {
        cases.add(format!("scan.{n}"), n, "each rank gets the sums up to itself", |job| {
            for len in [0, 1, 1000] {
                let (mine, expected) = (numbers(job.rank(), len), sums(0..job.rank() + 1, len));
                let mut output = vec![0; len];
                job.comm.scan(&mine, &mut output, Sum)?;
                assert_eq!(output, expected);
                let mut buffer = mine;
                job.comm.scan_in_place(&mut buffer, Sum)?;
                assert_eq!(buffer, expected);
            }
            Ok(())
        });
    }
    cases.section("6.11.2");
    for n in SIZES {
        cases.add(format!("exscan.{n}"), n, "each rank gets the sums before itself", |job| {
            for len in [0, 1, 1000] {
                let (mine, expected) = (numbers(job.rank(), len), sums(0..job.rank(), len));
                let mut output = vec![77; len];
                job.comm.exscan(&mine, &mut output, Sum)?;
                let untouched = job.rank() == 0 && output == vec![77; len];
                assert!(untouched || job.rank() > 0 && output == expected);
                let mut buffer = mine.clone();
                job.comm.exscan_in_place(&mut buffer, Sum)?;
                assert_eq!(buffer, if job.rank() == 0 { mine } else { expected });
            }
            Ok(())
        });
    }
}

fn nonblocking(cases: &mut Cases) {
    cases.section("6.12.1");
    for n in SIZES {
        cases.add(
            format!("ibarrier.{n}"),
            n,
            "no rank finishes a barrier before all have started it",
            |job| {
                let last = job.size() - 1;
                for round in 0..10_u64 {
                    if job.rank() == last {
                        let comm = job.comm.with_mode(Mode::Synchronous);
                        (0..last).try_for_each(|rank| comm.send(&[round], Rank(rank), 1))?;
                        job.comm.ibarrier()?.wait()?;
                        continue;
                    }
                    let barrier = job.comm.ibarrier()?;
                    let receive = job.comm.irecv(vec![99_u64], Rank(last), 1)?;
                    barrier.wait()?;
                    // A receive that has matched its message cannot be cancelled.
                    receive.cancel();
                    assert_eq!(receive.wait()?.buffer, [round]);
                }
                Ok(())
            },
        );
    }
    cases.section("6.12.2");
    for n in SIZES {
        cases.add(format!("ibcast.{n}"), n, "all ranks get the root's data", |job| {
            for (root, len) in (0..job.size()).flat_map(|root| [0, 1, 20_000].map(|len| (root, len))) {
                let data = bytes(u64::from(root), len);
                let buffer = if job.rank() == root { data.clone() } else { vec![0xee; len] };
                assert!(job.comm.ibcast(buffer, Rank(root))?.wait()?.buffer == data);
            }
            Ok(())
        });
    }
    // The sections of the operations are 6.12.3 to 6.12.12.
    for n in SIZES {
        cases.section("6.12.3");
        cases.add(format!("inonblocking.data.{n}"), n, "data arrives as in the blocking calls", |job| {
            for len in [0, 1, 3000] {
                moves_data(job, len)?;
            }
            Ok(())
        });
        cases.section("6.12.7");
        cases.add(format!("inonblocking.sums.{n}"), n, "sums are those of the blocking calls", |job| {
            for len in [0, 1, 1000] {
                adds(job, len)?;
            }
            Ok(())
        });
    }
    cases.section("6.12");
    cases.add("icoll.many", 3, "any number of operations is under way, and they end in any order", |job| {
        let mut started = Vec::new();
        for number in 0..100_u64 {
            started.push((number, job.comm.iallreduce(vec![number + u64::from(job.rank())], vec![0], Sum)?));
            if number % 10 == 0 {
                job.comm.barrier()?;
            }
        }
        if job.rank() == 1 {
            started.reverse();
        }
        for (number, request) in started {
            assert_eq!(request.wait()?.buffer.1, [3 * number + 3]);
        }
        Ok(())
    });
    cases.add("icoll.messages", 2, "a message and an operation do not wait for each other", |job| {
        // Rank 0 starts the operation first, and rank 1 the message first.
        for _ in 0..20 {
            if job.rank() == 0 {
                let sum = job.comm.iallreduce(vec![1], vec![0], Sum)?;
                job.comm.send(&[7_u8], Rank(1), 1)?;
                assert_eq!(sum.wait()?.buffer.1, [3]);
            } else {
                job.comm.recv(&mut [0_u8], Rank(0), 1)?;
                assert_eq!(job.comm.iallreduce(vec![2], vec![0], Sum)?.wait()?.buffer.1, [3]);
            }
        }
        Ok(())
    });
    cases.section("6.14");
    cases.add("icoll.order", 3, "blocking and nonblocking calls of the same order do not mix", |job| {
        for round in 0..20_u32 {
            let first = job.comm.ibcast(vec![if job.rank() == 0 { round } else { 99 }], Rank(0))?;
            let mut second = [if job.rank() == 1 { round + 1 } else { 99 }];
            job.comm.bcast(&mut second, Rank(1))?;
            let third = job.comm.ibcast(vec![if job.rank() == 2 { round + 2 } else { 99 }], Rank(2))?;
            assert_eq!((third.wait()?.buffer, second), (vec![round + 2], [round + 1]));
            assert_eq!(first.wait()?.buffer, [round]);
        }
        Ok(())
    });
}

/// Compares the nonblocking calls that move data with direct computations.
fn moves_data(job: &Job, len: usize) -> Result<(), Error> {
    let (comm, n, own) = (&job.comm, job.size(), job.rank() as usize);
    let of = |rank: u32| bytes(rank.into(), len);
    let all: Vec<u8> = (0..n).flat_map(of).collect();
    let whole = |rank: u32| bytes(rank.into(), len * n as usize);
    let blocks = consecutive((0..n).map(|_| len));
    let mut own_in_all = vec![0; all.len()];
    own_in_all[blocks[own].clone()].copy_from_slice(&of(job.rank()));
    for root in 0..n {
        let is_root = job.rank() == root;
        let room = vec![0; if is_root { all.len() } else { 0 }];
        let gathered = comm.igather(of(job.rank()), room.clone(), Rank(root))?.wait()?.buffer.1;
        assert!(!is_root || gathered == all);
        let gathered = comm.igatherv(of(job.rank()), room, &blocks, Rank(root))?.wait()?.buffer.1;
        assert!(!is_root || gathered == all);
        let mine = &whole(root)[blocks[own].clone()];
        let input = if is_root { whole(root) } else { vec![] };
        let scattered = comm.iscatter(input.clone(), vec![0; len], Rank(root))?.wait()?.buffer.1;
        assert!(scattered == mine);
        let scattered = comm.iscatterv(input, &blocks, vec![0; len], Rank(root))?.wait()?.buffer.1;
        assert!(scattered == mine);
    }
    assert!(comm.iallgather(of(job.rank()), vec![0; all.len()])?.wait()?.buffer.1 == all);
    assert!(comm.iallgather(InPlace, own_in_all.clone())?.wait()?.buffer.1 == all);
    assert!(comm.iallgatherv(of(job.rank()), vec![0; all.len()], &blocks)?.wait()?.buffer.1 == all);
    assert!(comm.iallgatherv(InPlace, own_in_all, &blocks)?.wait()?.buffer.1 == all);
    let to_me = |rank| whole(rank)[blocks[own].clone()].to_vec();
    let exchanged: Vec<u8> = (0..n).flat_map(to_me).collect();
    assert!(comm.ialltoall(whole(job.rank()), vec![0; all.len()])?.wait()?.buffer.1 == exchanged);
    assert!(comm.ialltoall(InPlace, whole(job.rank()))?.wait()?.buffer.1 == exchanged);
    let request = comm.ialltoallv(whole(job.rank()), &blocks, vec![0; all.len()], &blocks)?;
    assert!(request.wait()?.buffer.1 == exchanged);
    assert!(comm.ialltoallv(InPlace, &[], whole(job.rank()), &blocks)?.wait()?.buffer.1 == exchanged);
    Ok(())
}

/// Compares the nonblocking calls with reductions with direct computations.
fn adds(job: &Job, len: usize) -> Result<(), Error> {
    let (comm, n, rank) = (&job.comm, job.size(), job.rank());
    let mine = numbers(rank, len);
    for root in 0..n {
        let room = vec![0; if rank == root { len } else { 0 }];
        let sum = comm.ireduce(mine.clone(), room, Sum, Rank(root))?.wait()?.buffer.1;
        assert!(rank != root || sum == sums(0..n, len));
    }
    assert_eq!(comm.iallreduce(mine.clone(), vec![0; len], Sum)?.wait()?.buffer.1, sums(0..n, len));
    assert_eq!(comm.iallreduce(InPlace, mine.clone(), Sum)?.wait()?.buffer.1, sums(0..n, len));
    assert_eq!(comm.iscan(mine.clone(), vec![0; len], Sum)?.wait()?.buffer.1, sums(0..rank + 1, len));
    let before = comm.iexscan(InPlace, mine.clone(), Sum)?.wait()?.buffer.1;
    assert_eq!(before, if rank == 0 { mine } else { sums(0..rank, len) });
    let total = len * n as usize;
    let expected = &sums(0..n, total)[len * rank as usize..][..len];
    let mine = numbers(rank, total);
    assert_eq!(comm.ireduce_scatter(mine.clone(), vec![0; len], Sum)?.wait()?.buffer.1, expected);
    let lens = vec![len; n as usize];
    assert_eq!(comm.ireduce_scatterv(mine.clone(), vec![0; len], &lens, Sum)?.wait()?.buffer.1, expected);
    assert_eq!(comm.ireduce_scatter(InPlace, mine, Sum)?.wait()?.buffer.1[..len], *expected);
    Ok(())
}

fn persistent(cases: &mut Cases) {
    cases.section("6.13");
    for n in SIZES {
        cases.add(format!("coll.persistent.{n}"), n, "each start repeats the operation", |job| {
            let (comm, rank) = (&job.comm, job.rank());
            let mut barrier = comm.barrier_init()?;
            let mut bcast = comm.bcast_init(vec![0; 100], Rank(0))?;
            let mut sum = comm.allreduce_init(vec![0; 100], vec![0; 100], Sum)?;
            let mut all = comm.allgather_init(vec![0], vec![0; job.size() as usize])?;
            for round in 0..20_u32 {
                if rank == 0 {
                    bcast.output_mut()?.fill(round);
                }
                sum.input_mut()?.fill(rank + round);
                all.input_mut()?.fill(rank + round);
                start_all(&mut [&mut bcast, &mut sum, &mut all, &mut barrier])?;
                barrier.wait()?;
                all.wait()?;
                sum.wait()?;
                bcast.wait()?;
                assert_eq!(*bcast.output()?, [round; 100]);
                let expected: u32 = (0..job.size()).map(|rank| rank + round).sum();
                assert_eq!(*sum.output()?, [expected; 100]);
                assert_eq!(*all.output()?, (0..job.size()).map(|rank| rank + round).collect::<Vec<_>>());
            }
            Ok(())
        });
    }
    cases.add("coll.persistent.misuse", 2, "an active operation cannot be started or changed", |job| {
        let mut sum = job.comm.allreduce_init(vec![1], vec![0], Sum)?;
        expect_error!(sum.wait(), Error::Inactive);
        sum.start()?;
        expect_error!(sum.start(), Error::Active { .. });
        expect_error!(sum.input_mut(), Error::Active { .. });
        sum.wait()?;
        assert_eq!(*sum.output()?, [2]);
        Ok(())
    });
}

fn mixtures(cases: &mut Cases) {
    cases.section("6.14");
    for first in 0..3 {
        let rule = "operations of all kinds are under way together";
        cases.add(format!("coll.mixture.{first}"), 5, rule, move |job| {
            (0..10).try_for_each(|round| {
                mixture(job, first * 1000 + round).into_iter().try_for_each(|ended| {
                    assert!(ended?, "round {round}: the results are right");
                    Ok(())
                })
            })
        });
    }
    cases.section("6.2.1");
    for victim in 0..4_u32 {
        let rule = "each operation is finished or names the failed member, and the others go on";
        cases.failure(format!("coll.mixture.failure.{victim}"), 5, rule, move |job| {
            let mut round = 0;
            loop {
                if job.rank() == victim && round == 2 * u64::from(victim) {
                    // A drop of the requests would give up the operations before the end of this rank.
                    let _started = ManuallyDrop::new(start_mixture(job, round));
                    job.die();
                }
                let mut has_failed = false;
                for ended in mixture(job, round) {
                    match ended {
                        Ok(is_right) => assert!(is_right, "round {round}"),
                        Err(Error::PeerFailed { rank, .. }) if rank == victim => has_failed = true,
                        Err(error) => return Err(error),
                    }
                }
                if has_failed {
                    break;
                }
                round += 1;
            }
            let rest = job.comm.create_from_group(&job.comm.group().exclude([victim]), 1)?;
            let mut sum = [0];
            rest.allreduce(&[1], &mut sum, Sum)?;
            assert_eq!(sum, [4]);
            rest.barrier()
        });
    }
}

/// The rest of an operation that was started. It returns true if the result is right.
type Rest = Box<dyn FnOnce() -> Result<bool, Error>>;

/// Starts the operations of a round, and waits for them, in an order that depends on the rank. Returns their results.
fn mixture(job: &Job, round: u64) -> Vec<Result<bool, Error>> {
    let mut started = start_mixture(job, round);
    let turns = (job.rank() as usize + round as usize) % started.len();
    started.rotate_left(turns);
    started.into_iter().map(|operation| operation.and_then(|rest| rest())).collect()
}

/// Starts the operations of a round.
fn start_mixture(job: &Job, round: u64) -> Vec<Result<Rest, Error>> {
    let (comm, n, rank) = (job.comm.clone(), job.size(), job.rank());
    let len = [0, 1, 100, 3000][round as usize % 4];
    let root = (round % u64::from(n)) as u32;
    let (mine, total) = (numbers(rank, len), sums(0..n, len));
    let data = bytes(round, len);
    let all: Vec<u64> = (0..n).flat_map(|rank| numbers(rank, len)).collect();
    let to_me: Vec<u64> = (0..n)
        .flat_map(|from| numbers(from, len * n as usize)[len * rank as usize..][..len].to_vec())
        .collect();
    let bcast = comm.ibcast(if rank == root { data.clone() } else { vec![0; len] }, Rank(root));
    let sum = comm.iallreduce(mine.clone(), vec![0; len], Sum);
    let gather = comm.iallgather(mine.clone(), vec![0; all.len()]);
    let blocking = comm.allreduce(&[round], &mut [0], Max);
    let exchange = comm.ialltoall(InPlace, numbers(rank, len * n as usize));
    let scan = comm.iscan(InPlace, mine, Sum);
    let barrier = comm.ibarrier();
    vec![
        started(bcast, move |buffer| buffer == data),
        started(sum, move |(_, output)| output == total),
        started(gather, move |(_, output)| output == all),
        Ok(Box::new(move || blocking.map(|()| true))),
        started(exchange, move |(_, output)| output == to_me),
        started(scan, move |(_, output)| output == sums(0..rank + 1, len)),
        started(barrier, |()| true),
    ]
}

/// Returns the rest of an operation, which compares its result.
fn started<B: Owned>(
    request: Result<Request<B>, Failed<B>>,
    is_right: impl FnOnce(B) -> bool + 'static,
) -> Result<Rest, Error> {
    let request = request?;
    Ok(Box::new(move || Ok(is_right(request.wait()?.buffer))))
}

fn correctness(cases: &mut Cases) {
    cases.section("6.14");
    cases.add("coll.apart", 3, "collective messages match no receive of the program", |job| {
        let mut got = [0u8];
        let (next, previous) = job.ring();
        job.comm.scope(|scope| {
            let receive = scope.irecv(&mut got, Source::ANY, Tag::ANY)?;
            job.comm.allreduce(&[1], &mut [0], Sum)?;
            job.comm.bcast(&mut [0u8; 100], Rank(0))?;
            scope.isend(&[5u8], next, 0)?;
            let status = scope.wait(receive)?;
            assert_eq!((status.peer, status.bytes), (previous, 1));
            Ok::<_, Error>(())
        })?;
        assert_eq!(got, [5]);
        job.comm.barrier()
    });
    cases.add("coll.mixed", 3, "collective calls follow each other without a barrier between them", |job| {
        for round in 0..30 {
            let root = Rank(round % 3);
            let mut value = [if job.comm.rank() == root { round } else { 99 }];
            job.comm.bcast(&mut value, root)?;
            assert_eq!(value, [round]);
            let mut all = [0; 3];
            job.comm.gather(&[job.rank() + round], &mut all, root)?;
            assert!(job.comm.rank() != root || all == [round, round + 1, round + 2]);
        }
        Ok(())
    });
    cases.add("coll.communicators", 4, "collective calls on different communicators do not mix", |job| {
        let twin = job.comm.dup()?;
        let half = job.comm.split(Some(job.rank() % 2), 0)?.expect("it has a colour");
        let mut sums = [[0]; 3];
        for (comm, sum) in [&half, &twin, &job.comm].into_iter().zip(&mut sums) {
            comm.allreduce(&[1 << (8 * job.rank())], sum, Sum)?;
        }
        let of_half = if job.rank().is_multiple_of(2) { 0x1_0001 } else { 0x100_0100 };
        assert_eq!(sums, [[of_half], [0x101_0101], [0x101_0101]]);
        Ok(())
    });
    cases.section("6.2.1");
    cases.add("coll.misuse", 2, "wrong lengths and roots are errors, and nothing is sent", |job| {
        expect_error!(job.comm.bcast(&mut [0u8], Rank(2)), Error::InvalidRank { rank: Rank(2), size: 2 });
        let wrong = job.comm.allgather(&[0u8; 2], &mut [0; 3]);
        expect_error!(wrong, Error::WrongLength { call: "allgather", what: "output", len: 3, expected: 4 });
        expect_error!(job.comm.bcast(&mut [0u8], Root::This), Error::NeedsTwoGroups);
        job.comm.barrier()
    });
}

/// Returns true if the call has ended because a member has failed, left, or given up.
fn is_end(result: &Result<(), Error>) -> bool {
    matches!(result, Err(Error::PeerFailed { .. } | Error::Abandoned { .. }))
}

/// Checks that the error of a collective call names the members of `late` alone, apart from members that have not
/// answered. A member that does not run during the roll call has not answered, whether it has begun the call or not.
fn assert_names(error: &Error, late: &[u32]) {
    let Error::TimedOut { report, .. } = error else { panic!("{error}") };
    let members = report.members.as_ref().unwrap_or_else(|| panic!("{error}"));
    assert!(members.closed.is_empty() && members.unasked == 0, "{error}");
    assert!(members.absent.iter().all(|member| late.contains(&member.rank.0)), "{error}");
    let named: Vec<_> = members.absent.iter().chain(&members.silent).map(|member| member.rank.0).collect();
    assert!(late.iter().all(|rank| named.contains(rank)), "{error}");
}

fn late_ranks(cases: &mut Cases) {
    cases.section("6.2.1");
    cases.add("coll.late", 5, "at its deadline a call names the ranks that have not come", |job| {
        // The ranks of `work` are those of the job in the opposite order.
        let work = job.comm.split(Some(0), -i64::from(job.rank()))?.expect("it has a colour");
        let brief = work.with_timeout(SHORT);
        let begun = matches!(work.rank(), Rank(2 | 4)).then(|| work.ibarrier()).transpose()?;
        job.barrier()?;
        if work.rank() == 0 {
            assert_names(&brief.barrier().unwrap_err(), &[1, 3]);
        }
        // All ranks answer while they wait here.
        job.barrier()?;
        if let Some(begun) = begun {
            begun.cancel();
            let ended = begun.wait().map(|_| ()).map_err(|failed| failed.error);
            assert!(matches!(ended, Err(Error::Cancelled { .. })) || is_end(&ended), "{ended:?}");
        }
        job.barrier()?;
        if work.rank() == 0 {
            let mut requests = vec![brief.iallreduce(vec![1], vec![0], Sum)?];
            requests.push(brief.iallreduce(vec![1], vec![0], Sum)?);
            for request in requests {
                assert_names(&request.wait().unwrap_err().error, &[1, 2, 3, 4]);
            }
        }
        job.barrier()
    });
    cases.add("coll.late.persistent", 3, "also a round of a persistent call", |job| {
        let work = job.comm.dup()?;
        let mut begun = None;
        if job.rank() == 2 {
            begun.insert(work.barrier_init()?).start()?;
        }
        job.barrier()?;
        if job.rank() == 0 {
            let mut barrier = work.with_timeout(SHORT).barrier_init()?;
            barrier.start()?;
            assert_names(&barrier.wait().unwrap_err(), &[1]);
        }
        job.barrier()?;
        if let Some(mut begun) = begun {
            begun.cancel();
            let ended = begun.wait();
            assert!(matches!(ended, Err(Error::Cancelled { .. })) || is_end(&ended), "{ended:?}");
        }
        job.barrier()
    });
}

/// Threads that each make the calls of a communicator of their own.
fn in_threads(cases: &mut Cases) {
    cases.section("6.14");
    let rule = "threads make calls on a communicator each, and none waits for the calls of another thread";
    cases.threads("coll.threads", 3, rule, |job| {
        for _ in 0..5 {
            let comms = (0..4).map(|_| job.comm.dup()).collect::<Result<Vec<_>, _>>()?;
            let rank = job.rank();
            let calls = |comm: &Comm| {
                for round in 0..3 {
                    let (mut sum, mut last) = ([0], [rank]);
                    comm.allreduce(&[rank + round], &mut sum, Sum)?;
                    comm.bcast(&mut last, Rank(2))?;
                    let request = comm.iallreduce(vec![rank], vec![0], Sum)?;
                    comm.ibarrier()?.wait()?;
                    assert_eq!((sum, last, request.wait()?.buffer.1), ([3 + 3 * round], [2], vec![3]));
                    comm.barrier()?;
                }
                Ok::<_, Error>(())
            };
            let ended = std::thread::scope(|scope| {
                let threads: Vec<_> = comms.iter().map(|comm| scope.spawn(move || calls(comm))).collect();
                threads.into_iter().map(|thread| thread.join().expect("no panic")).collect::<Vec<_>>()
            });
            ended.into_iter().collect::<Result<(), _>>()?;
        }
        Ok(())
    });
}

/// First calls that do not match. Only some ranks begin to create a board.
fn first_calls(cases: &mut Cases) {
    cases.section("6.2.1");
    cases.add("coll.first_call", 3, "first calls that do not match leave no trace in later calls", |job| {
        for root in 0..3 {
            let work = job.comm.dup()?;
            let brief = work.with_timeout(SHORT);
            let ended = match job.rank() == root {
                true => brief.barrier(),
                false => brief.gather(&[1], &mut if job.rank() == 2 { vec![0; 3] } else { vec![] }, Rank(2)),
            };
            // A rank that needs nothing of the others succeeds.
            let is_root = job.rank() == root || job.rank() == 2;
            assert!(ended.is_err() || !is_root, "{ended:?}");
            job.barrier()?;
            for _ in 0..5 {
                work.barrier()?;
                let mut buffer = [job.rank()];
                work.bcast(&mut buffer, Rank(1))?;
                assert_eq!(buffer, [1]);
            }
        }
        Ok(())
    });
}

fn ends(cases: &mut Cases) {
    late_ranks(cases);
    first_calls(cases);
    in_threads(cases);
    cases.section("6.2.1");
    cases.add("coll.timeout", 3, "a time-out ends a call that a rank does not make", |job| {
        let work = job.comm.dup()?;
        if job.rank() > 0 {
            let ended = work.with_timeout(SHORT).barrier();
            assert!(matches!(ended, Err(Error::TimedOut { .. })) || is_end(&ended), "{ended:?}");
        }
        // Rank 0 makes the call after the other ranks have given it up.
        job.barrier()?;
        if job.rank() == 0 {
            let late = work.barrier();
            assert!(late.is_ok() || is_end(&late), "{late:?}");
        }
        // The communicator can be used afterwards.
        for _ in 0..10 {
            let mut sum = [0];
            work.allreduce(&[job.rank()], &mut sum, Sum)?;
            assert_eq!(sum, [3]);
        }
        Ok(())
    });
    cases.add("coll.cancel", 2, "a cancelled call ends", |job| {
        if job.rank() == 0 {
            let cancel = CancelToken::new();
            cancel.cancel();
            expect_error!(job.comm.with_cancel(&cancel).barrier(), Error::Cancelled { .. });
        }
        job.barrier()?;
        if job.rank() == 1 {
            let late = job.comm.barrier();
            assert!(late.is_ok() || is_end(&late), "{late:?}");
        }
        job.comm.barrier()
    });
    cases.add("coll.panic", 4, "a panic of the operation ends the call", |job| {
        let work = job.comm.dup()?;
        let rank = job.rank();
        let op = commuting(move |from: &[u32], into: &mut [u32]| {
            if rank == 3 {
                std::panic::resume_unwind(Box::new("expected"));
            }
            from.iter().zip(into).for_each(|(from, into)| *into += from);
        });
        let mut sum = [0];
        let ended = catch_unwind(AssertUnwindSafe(|| work.allreduce(&[1], &mut sum, op)));
        match ended {
            Err(payload) => assert!(rank == 3 && payload.downcast_ref() == Some(&"expected")),
            Ok(Ok(())) => assert_eq!(sum, [4]),
            Ok(ended) => assert!(is_end(&ended), "{ended:?}"),
        }
        job.barrier()?;
        work.allreduce(&[1], &mut sum, Sum)?;
        assert_eq!(sum, [4]);
        Ok(())
    });
    cases.add(
        "icoll.cancel",
        3,
        "a cancelled or dropped operation ends, and the others do not wait",
        |job| {
            let work = job.comm.dup()?;
            for drops in [false, true] {
                let request = work.iallreduce(vec![1], vec![0], Sum)?;
                let ended = match (job.rank(), drops) {
                    (0, true) => {
                        drop(request);
                        Ok(())
                    }
                    (0, false) => {
                        request.cancel();
                        let ended = request.wait().map(drop).map_err(Error::from);
                        if matches!(ended, Err(Error::Cancelled { .. })) { Ok(()) } else { ended }
                    }
                    _ => request.wait().map(drop).map_err(Error::from),
                };
                assert!(ended.is_ok() || is_end(&ended), "{ended:?}");
                job.barrier()?;
            }
            let mut sum = [0];
            work.allreduce(&[1], &mut sum, Sum)?;
            assert_eq!(sum, [3]);
            Ok(())
        },
    );
    cases.failure("icoll.failure", 5, "the failure of a member ends all operations under way", |job| {
        let requests = [(); 3].map(|()| job.comm.iallreduce(vec![1], vec![0], Sum));
        let barrier = job.comm.ibarrier()?;
        if job.rank() == 2 {
            // A drop of the requests would give up the operations before the end of this rank.
            let _started = ManuallyDrop::new((requests, barrier));
            job.die();
        }
        for request in requests {
            let ended = request?.wait().map(|done| assert_eq!(done.buffer.1, [5])).map_err(Error::from);
            assert!(matches!(ended, Ok(()) | Err(Error::PeerFailed { rank: Rank(2), .. })), "{ended:?}");
        }
        let ended = barrier.wait().map(drop).map_err(Error::from);
        assert!(matches!(ended, Ok(()) | Err(Error::PeerFailed { rank: Rank(2), .. })), "{ended:?}");
        // The failure ends this operation, because rank 2 does not start it.
        let last = job.comm.ibarrier()?.wait().map_err(Error::from);
        expect_error!(last, Error::PeerFailed { rank: Rank(2), .. });
        // No rank leaves before the others have ended their operations.
        let rest = job.comm.group().exclude([2]);
        job.comm.create_from_group(&rest, 1)?.ibarrier()?.wait()?;
        Ok(())
    });
    cases.failure("coll.failure", 5, "the failure of a member ends the call at every rank", |job| {
        if job.rank() == 2 {
            job.die();
        }
        let ended = job.comm.allreduce(&[1], &mut [0], Sum);
        expect_error!(ended, Error::PeerFailed { rank: Rank(2), .. });
        // Later calls on the communicator fail too.
        expect_error!(job.comm.barrier(), Error::PeerFailed { rank: Rank(2), .. });
        // The living ranks create a communicator without the failed rank, and continue.
        let rest = job.comm.group().exclude([2]);
        let rest = job.comm.create_from_group(&rest, 1)?;
        let mut sum = [0];
        rest.allreduce(&[1], &mut sum, Sum)?;
        assert_eq!(sum, [4]);
        Ok(())
    });
    cases.failure("coll.failure.between", 3, "a rank may fail after it has done its part", |job| {
        // Rank 0 is finished when it has sent its elements.
        let mut sum = [0];
        let ended = job.comm.scan(&[job.rank()], &mut sum, Sum);
        if job.rank() == 0 {
            job.die();
        }
        let is_failure = matches!(ended, Err(Error::PeerFailed { rank: Rank(0), .. }));
        assert!(is_failure || ended.is_ok() && sum == [[0, 1, 3][job.rank() as usize]], "{ended:?}");
        Ok(())
    });
}
