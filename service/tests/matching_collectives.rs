//! Collective calls that do not match, under the check `collectives`.

use samite::reduction::{Max, Sum, commuting};
use samite::{Check, Comm, Error, InPlace, Rank, Root, Settings};

/// Runs `call` as three ranks whose collective calls are checked.
fn checked<R: Send>(call: impl Fn(&Comm) -> R + Sync) -> Vec<R> {
    let mut settings = Settings::default();
    settings.set_check(&[Check::Collectives]).unwrap();
    settings.local(3, |world| call(world.comm()))
}

/// Runs `call` in the same way as ranks that share a board.
fn checked_on_board<R: Send>(call: impl Fn(&Comm) -> R + Sync) -> Vec<R> {
    let mut settings = Settings::default();
    settings.set_check(&[Check::Collectives]).unwrap();
    settings.set_transport("samite-shm").unwrap();
    settings.local(3, |world| {
        let comm = world.comm();
        // The board is there when the first barrier has ended.
        comm.barrier().unwrap();
        call(comm)
    })
}

/// Returns the text of the error with which a call ends at every rank, without the numbers of lines.
#[track_caller]
fn mismatch(call: impl Fn(&Comm) -> Result<(), Error> + Sync) -> String {
    let call = |comm: &Comm| {
        let end = call(comm);
        // The communicator can be used afterwards.
        let mut sum = [0];
        comm.allreduce(&[1], &mut sum, Sum).unwrap();
        assert_eq!(sum, [3]);
        end
    };
    let text = difference(checked(call));
    // A board may offer other algorithms.
    let on_board = difference(checked_on_board(call));
    assert!(on_board == text || text.contains("algorithm"), "{on_board}");
    text
}

/// Returns the difference that all ranks report, without the numbers of lines.
fn difference(ends: Vec<Result<(), Error>>) -> String {
    let texts: Vec<String> = ends
        .into_iter()
        .map(|end| match end {
            Err(Error::CallsDiffer { difference }) => difference.into(),
            end => panic!("the calls match: {end:?}"),
        })
        .collect();
    assert!(texts.iter().all(|text| *text == texts[0]), "{texts:?}");
    let parts = texts[0].split(".rs:").enumerate().map(|(index, part)| {
        let is_number = |at: char| at.is_ascii_digit() || at == ':';
        if index == 0 { part.to_owned() } else { format!(".rs:{}", part.trim_start_matches(is_number)) }
    });
    parts.collect()
}

fn is_first(comm: &Comm) -> bool {
    comm.rank() == 0
}

/// Waits for a nonblocking operation without its buffers.
fn wait<B: samite::Owned>(request: Result<samite::Request<B>, samite::Failed<B>>) -> Result<(), Error> {
    Ok(request.map_err(Error::from)?.wait().map(drop)?)
}

#[test]
fn each_kind_of_mismatch_names_two_calls() {
    let last = |comm: &Comm| comm.rank() == 2;
    let texts = [
        mismatch(|comm| match last(comm) {
            true => comm.barrier(),
            false => comm.allreduce(&[1], &mut [0], Sum),
        }),
        // The order of two calls.
        mismatch(|comm| match is_first(comm) {
            true => comm.barrier().and_then(|()| comm.bcast(&mut [0], Rank(0))),
            false => comm.bcast(&mut [0], Rank(0)).and_then(|()| comm.barrier()),
        }),
        mismatch(|comm| comm.bcast(&mut [0], Rank(u32::from(last(comm))))),
        mismatch(|comm| {
            let root = Rank(u32::from(is_first(comm)));
            comm.reduce(&[1], &mut [0], Sum, root)
        }),
        mismatch(|comm| comm.bcast(&mut vec![0; if last(comm) { 3 } else { 2 }], Rank(0))),
        mismatch(|comm| {
            let len = if is_first(comm) { 2 } else { 1 };
            comm.allgather(&vec![1; len], &mut vec![0; 3 * len])
        }),
        mismatch(|comm| match last(comm) {
            true => comm.allreduce(&[1_u32], &mut [0], Sum),
            false => comm.allreduce(&[1.0_f32], &mut [0.0], Sum),
        }),
        mismatch(|comm| match is_first(comm) {
            true => comm.scan(&[1], &mut [0], Sum),
            false => comm.scan(&[1], &mut [0], Max),
        }),
        mismatch(|comm| match is_first(comm) {
            true => comm.scan(&[1], &mut [0], Sum),
            false => comm.exscan(&[1], &mut [0], Sum),
        }),
        mismatch(|comm| {
            let own = commuting(|from: &[u8], into: &mut [u8]| into.copy_from_slice(from));
            if last(comm) {
                comm.allreduce(&[1], &mut [0], own)
            } else {
                comm.allreduce(&[1_u8], &mut [0], Max)
            }
        }),
        mismatch(|comm| match is_first(comm) {
            true => comm.barrier(),
            false => wait(comm.ibarrier()),
        }),
        mismatch(|comm| match is_first(comm) {
            true => wait(comm.iallreduce(vec![1], vec![0], Sum)),
            false => {
                let mut sum = comm.allreduce_init(vec![1], vec![0], Sum)?;
                sum.start()?;
                sum.wait()
            }
        }),
        mismatch(|comm| match last(comm) {
            true => comm.alltoall_in_place(&mut [1; 3]),
            false => comm.alltoall(&[1; 3], &mut [0; 3]),
        }),
        mismatch(|comm| match last(comm) {
            true => wait(comm.iallreduce(InPlace, vec![1], Sum)),
            false => wait(comm.iallreduce(vec![1], vec![0], Sum)),
        }),
        mismatch(|comm| {
            let names = if is_first(comm) { "allreduce=ring" } else { "none" };
            comm.with_coll_algorithms(names)?.allreduce(&[1; 9], &mut [0; 9], Sum)
        }),
        mismatch(|comm| {
            let lens = if last(comm) { [1, 1, 2] } else { [1, 2, 1] };
            let mine = vec![1; lens[comm.rank().index()]];
            comm.allgatherv(&mine, &mut [0; 4], &samite::consecutive(lens))
        }),
        mismatch(|comm| {
            let lens = if last(comm) { [1, 1, 2] } else { [2, 1, 1] };
            comm.reduce_scatterv(&[1; 4], &mut vec![0; lens[comm.rank().index()]], &lens, Sum)
        }),
    ];
    insta::assert_snapshot!(texts.join("\n"));
}

#[test]
fn the_error_names_the_lines_of_both_calls() {
    let (first, second) = (line!() + 2, line!() + 3);
    let ends = checked(|comm| match comm.rank().0 {
        0 => comm.barrier(),
        _ => comm.scan(&[1], &mut [0], Sum),
    });
    for end in ends {
        let text = end.unwrap_err().to_string();
        let at = |line| format!("{}:{line}:", file!());
        assert!(text.contains(&format!("rank 0 called `barrier` at {}", at(first))), "{text}");
        assert!(text.contains(&format!("rank 1 called `scan` at {}", at(second))), "{text}");
    }
}

#[test]
fn calls_that_match_succeed() {
    let sums = checked(|comm| {
        let rank = comm.rank().0;
        let mut all = [0_u32; 3];
        // Only the root works in place, and only the root has an output.
        match rank {
            1 => comm.gather_in_place(&mut all)?,
            _ => comm.gather(&[rank], &mut [], Rank(1))?,
        }
        comm.gatherv(&vec![1_u32; rank as usize], &mut all, &samite::consecutive([0, 1, 2]), Rank(2))?;
        let mut barriers = [comm.ibarrier()?, comm.ibarrier()?];
        for barrier in &mut barriers {
            while barrier.test().is_none() {}
        }
        let sum = comm.iallreduce(vec![rank], vec![0], Sum)?;
        let mut one = comm.split(Some(0), 0)?.expect("it has a colour").bcast_init(vec![rank], Rank(2))?;
        for _ in 0..3 {
            one.start()?;
            one.wait()?;
        }
        assert_eq!(*one.output()?, [2]);
        let mine = comm.split(Some(u32::from(rank == 0)), 0)?.expect("it has a colour");
        let both = mine.create_intercomm(Rank(0), comm, Rank(u32::from(rank == 0)), 7)?;
        let mut number = [rank];
        both.bcast(&mut number, if rank == 0 { Root::This } else { Root::Rank(Rank(0)) })?;
        assert_eq!(number, [0]);
        Ok::<_, Error>(sum.wait()?.buffer.1)
    });
    assert_eq!(sums, [(); 3].map(|()| Ok(vec![3])));
}

#[test]
fn a_call_that_a_rank_does_not_make_waits_until_its_time_out() {
    let ends = checked(|comm| match comm.rank().0 {
        0 => Ok(()),
        _ => comm.with_timeout(std::time::Duration::from_millis(30)).barrier(),
    });
    for end in &ends[1..] {
        assert!(!matches!(end, Ok(()) | Err(Error::CallsDiffer { .. })), "{end:?}");
    }
}

/// Makes one of several calls, with one of several lengths.
fn one_of(comm: &Comm, choice: u32) -> Result<(), Error> {
    let (len, root) = (1 + choice as usize / 7 % 3 * 1000, Rank(choice / 21 % 3));
    let (input, mut output) = (vec![1_u64; len], vec![0; 3 * len]);
    match choice % 7 {
        0 => comm.barrier(),
        1 => comm.bcast(&mut output, root),
        2 => comm.gather(&input, &mut output, root),
        3 => comm.scatter(&output.clone(), &mut vec![0; len], root),
        4 => comm.allreduce(&input, &mut output[..len], Sum),
        5 => comm.alltoall(&output.clone(), &mut output),
        _ => wait(comm.iallgather(input, output)),
    }
}

#[test]
fn mismatches_without_the_check_end_at_the_time_out_at_the_latest() {
    Settings::default().local(3, |world| {
        for round in 0..60 {
            let comm = world.comm().dup().unwrap().with_timeout(std::time::Duration::from_millis(20));
            let choice = (round * 3 + comm.rank().0).wrapping_mul(2_654_435_761) >> 16;
            // A call may have done its part before the mismatch shows.
            let end = one_of(&comm, choice);
            let is_known = matches!(
                end,
                Ok(()) | Err(Error::TimedOut { .. } | Error::Abandoned { .. } | Error::LengthsDiffer { .. })
            );
            assert!(is_known, "{end:?}");
            world.comm().barrier().unwrap();
        }
    });
}

/// The ranks choose an algorithm on the board, and rank 0 one by messages.
#[test]
fn different_algorithms_of_barriers_and_reductions_are_a_mismatch() {
    type Case = (&'static str, [&'static str; 2], fn(&Comm) -> Result<(), Error>);
    let cases: [Case; 2] = [
        ("barrier=dissemination", ["Dissemination", "Board"], |comm| comm.barrier()),
        ("reduce=binomial", ["Binomial", "Board"], |comm| comm.reduce(&[1], &mut [0], Sum, Rank(0))),
    ];
    for (selection, names, call) in cases {
        let ends = checked_on_board(|comm| {
            let selection = if is_first(comm) { selection } else { "none" };
            call(&comm.with_coll_algorithms(selection)?)
        });
        let text = difference(ends);
        let are_named = names.iter().all(|name| text.contains(&format!("algorithm `{name}")));
        assert!(are_named, "{text}");
    }
}
