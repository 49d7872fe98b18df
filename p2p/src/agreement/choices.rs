//! The colours and keys that ranks choose in a split, in few words if they are regular.
//!
//! The choices of ranks with consecutive indices are a sequence of pairs of a colour and a key. In a *line* both change
//! by a constant from each pair to the next one. A *tile* repeats a row of lines, and changes their colours and keys by
//! a constant from each row to the next one. If each of 2^20 ranks chooses `rank % 1000` as its colour, this is a tile
//! of 1048 rows with one line each, and another line. The choices `rank / 1000` are a tile too, and so are the choices
//! in which every eighth rank has a colour and the other ranks have none.
//!
//! Sequences are appended to each other in the tree of an agreement. A sequence is divided into lines from its start,
//! each as long as possible. When a sequence is appended, it is divided again, because its lines may then begin at
//! other pairs. This takes a few steps for each of its tiles if the rows match.

use samite_fabric::link::Indices;

/// A colour and a key, or a difference of two of them. All arithmetic is modulo 2^64, so each difference exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pair {
    /// [`NO_COLOUR`] if the rank has no colour.
    pub(super) colour: u64,
    pub(super) key: i64,
}

/// Stands for the colour of a rank that has none.
pub(super) const NO_COLOUR: u64 = u64::MAX;

/// The choices of ranks with consecutive indices.
#[derive(Clone, Debug, Default)]
pub(super) struct Choices {
    /// The tiles in order. This rank appends no tile with one row to another tile with one row.
    tiles: Vec<Tile>,
    /// The lines behind the tiles. If they are the first lines of the last tile's next row, they become a part of the
    /// tile when the row is complete.
    lines: Vec<Line>,
    /// The last line, which may become longer.
    open: Option<Line>,
}

/// A row of lines that is repeated `rows` times, each time with other colours and keys. If `rows` is 1, it is a row of
/// any number of lines that is not repeated.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Tile {
    rows: u32,
    /// The difference between two rows. Zero if there is one row.
    shift: Pair,
    row: Vec<Line>,
}

/// A sequence of pairs that change by a constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Line {
    first: Pair,
    /// The difference between a pair and the previous one. Zero if there is one pair.
    step: Pair,
    len: u32,
}

/// The indices, in arithmetic progression, of ranks with one colour whose keys are in arithmetic progression.
#[derive(Clone, Copy, Debug)]
struct Found {
    indices: Indices,
    /// The key of the first of these ranks.
    key: i64,
    /// The difference between a key and the previous one.
    step: i64,
}

/// The maximum number of lines in a row that is repeated.
const ROW_MAX: usize = 8;

impl Choices {
    /// Returns the choice of one rank.
    pub(super) fn of(choice: Pair) -> Self {
        Self { open: Some(Line::of(choice)), ..Self::default() }
    }

    /// Returns the choice of the rank with this index, counted from the first of these ranks. Returns `None` if there
    /// is no such rank.
    pub(super) fn get(&self, index: u32) -> Option<Pair> {
        let mut index = index;
        for (rows, shift, row) in self.all() {
            let len: u32 = row.iter().map(|line| line.len).sum();
            if index / len < rows {
                let (number, mut offset) = (index / len, index % len);
                for line in row {
                    if offset < line.len {
                        return Some(line.pair(offset).plus(shift.times(number)));
                    }
                    offset -= line.len;
                }
            }
            index -= rows * len;
        }
        None
    }

    /// Returns the indices of the ranks with a colour, ordered by key, then by index.
    pub(super) fn indices_of(&self, colour: u64) -> Vec<Indices> {
        let mut found = Vec::new();
        let mut first = 0;
        for (rows, shift, row) in self.all() {
            let width = row.iter().map(|line| line.len).sum();
            let mut at = first;
            for line in row {
                find(&Block { first: at, rows, width, shift, line: *line }, colour, &mut found);
                at += line.len;
            }
            first += rows * width;
        }
        in_order(found)
    }

    /// Appends the choices of the ranks that follow.
    pub(super) fn append(&mut self, other: Self) {
        for tile in &other.tiles {
            self.add_tile(tile);
        }
        other.lines.into_iter().chain(other.open).for_each(|line| self.add_line(line));
    }

    /// Returns the choices as words for a message: about three for each rank at most, and a few if they are regular.
    pub(super) fn to_words(&self) -> Vec<u64> {
        let mut words = Vec::new();
        for (rows, shift, row) in self.all() {
            words.push(u64::from(rows) << 32 | row.len() as u64);
            if rows > 1 {
                words.extend(shift.to_words());
            }
            for line in row {
                words.push(line.len.into());
                words.extend(line.first.to_words());
                if line.len > 1 {
                    words.extend(line.step.to_words());
                }
            }
        }
        words
    }

    /// Returns the largest number of words for the choices of `len` ranks.
    pub(super) const fn words_max(len: u32) -> usize {
        3 * len as usize + 1
    }

    /// Returns the choices that [`to_words`](Self::to_words) has written as these words. Returns `None` if they are not
    /// the choices of `len` ranks.
    pub(super) fn from_words(words: &[u64], len: u32) -> Option<Self> {
        let mut words = words.iter().copied();
        let (mut tiles, mut total) = (Vec::new(), 0u64);
        while let Some(head) = words.next() {
            let (rows, lines) = ((head >> 32) as u32, head as u32);
            let shift = if rows > 1 { Pair::read(&mut words)? } else { Pair::ZERO };
            // The iterator ends before more lines are kept than there are words.
            let row = (0..lines).map(|_| Line::read(&mut words)).collect::<Option<Vec<_>>>()?;
            let width: u64 = row.iter().map(|line| u64::from(line.len)).sum();
            total = width.checked_mul(rows.into())?.checked_add(total)?;
            if width == 0 || rows == 0 || total > len.into() {
                return None;
            }
            tiles.push(Tile { rows, shift, row });
        }
        (total == u64::from(len)).then(|| Self { tiles, lines: Vec::new(), open: None })
    }

    /// Returns the rows, shift and lines of all tiles. The lines behind the tiles are returned as up to two tiles with
    /// one row.
    fn all(&self) -> impl Iterator<Item = (u32, Pair, &[Line])> {
        let tiles = self.tiles.iter().map(|tile| (tile.rows, tile.shift, &tile.row[..]));
        let behind = [&self.lines[..], self.open.as_slice()];
        tiles.chain(behind.into_iter().filter(|row| !row.is_empty()).map(|row| (1, Pair::ZERO, row)))
    }

    fn push(&mut self, pair: Pair) {
        self.open = Some(match self.open {
            None => Line::of(pair),
            Some(open) if open.len == 1 => Line { step: pair.minus(open.first), len: 2, ..open },
            Some(open) if open.pair(open.len) == pair => Line { len: open.len + 1, ..open },
            Some(open) => {
                self.close(open);
                Line::of(pair)
            }
        });
    }

    /// Adds the pairs of a line. Takes constant time.
    fn add_line(&mut self, line: Line) {
        for number in 0..line.len {
            self.push(line.pair(number));
            if let Some(open) = self.open.as_mut().filter(|open| open.len > 1 && open.step == line.step) {
                // `push` would append each of the other pairs to this line.
                open.len += line.len - number - 1;
                return;
            }
        }
    }

    /// Adds a line that does not become longer. If the line completes a row with which the last tile continues, the
    /// tile gets one more row. If it completes two rows that differ by a constant, these rows become a tile.
    fn close(&mut self, line: Line) {
        let behind = self.lines.len();
        if let Some(tile) = self.tiles.last_mut().filter(|tile| tile.rows > 1) {
            let is_next = |(number, line): (usize, &Line)| tile.line(tile.rows, number) == Some(*line);
            if self.lines.iter().enumerate().all(is_next) && is_next((behind, &line)) {
                self.lines.push(line);
                if self.lines.len() == tile.row.len() {
                    tile.rows += 1;
                    self.lines.clear();
                }
                return;
            }
            self.dissolve();
        }
        self.lines.push(line);
        let longest = ROW_MAX.min(self.lines.len() / 2);
        if let Some(width) = (1..=longest).rev().find(|width| shift_of(&self.lines, *width).is_some()) {
            let shift = shift_of(&self.lines, width).expect("it was found");
            let row = self.lines.split_off(self.lines.len() - 2 * width)[..width].to_vec();
            self.lines_to_tile();
            self.tiles.push(Tile { rows: 2, shift, row });
        }
    }

    /// Divides the last tile into its lines again if it is small, because these lines may be a part of a longer row
    /// that is repeated: for example if the colours 0, 5 and 10 are repeated.
    fn dissolve(&mut self) {
        let is_small = |tile: &mut Tile| tile.rows as usize * tile.row.len() <= ROW_MAX;
        let Some(tile) = self.tiles.pop_if(is_small) else { return };
        let mut lines = self.tiles.pop_if(|tile| tile.rows == 1).map_or_else(Vec::new, |tile| tile.row);
        let repeated = (0..tile.rows).flat_map(|row| (0..tile.row.len()).map(move |number| (row, number)));
        lines.extend(repeated.filter_map(|(row, number)| tile.line(row, number)));
        lines.append(&mut self.lines);
        self.lines = lines;
    }

    fn lines_to_tile(&mut self) {
        if !self.lines.is_empty() {
            self.tiles.push(Tile { rows: 1, shift: Pair::ZERO, row: std::mem::take(&mut self.lines) });
        }
    }

    /// Adds the pairs of a tile. This takes a few steps if the last of these tiles has the same rows and shift.
    fn add_tile(&mut self, tile: &Tile) {
        let width = tile.row.len();
        let mut row = 0;
        while row < tile.rows {
            for number in 0..width {
                self.add_line(tile.line(row, number).expect("it is in the row"));
                row += self.skip_rows(tile, row, number);
            }
            row += 1;
        }
    }

    /// Adds the remaining rows of `tile` in one step if that is possible, and returns their number, or 0 if it is not.
    /// The line `number` of row `row` of `tile` was added before the call. The rows can be added if the last of these
    /// tiles continues with the lines that follow in `tile`. Afterwards the line `number` of the last row of `tile` is
    /// the line that was added last.
    fn skip_rows(&mut self, tile: &Tile, row: u32, number: usize) -> u32 {
        let width = tile.row.len();
        let Some(last) = self.tiles.last_mut().filter(|last| last.rows > 1 && last.row.len() == width) else {
            return 0;
        };
        let rows = tile.rows - row - 1;
        let is_same = |at: usize| {
            let (row, number) = (row + ((number + at) / width) as u32, (number + at) % width);
            last.line(last.rows, at) == tile.line(row, number)
        };
        let is_aligned = self.lines.is_empty() && self.open == tile.line(row, number);
        if rows == 0 || last.shift != tile.shift || !is_aligned || !(0..width).all(is_same) {
            return 0;
        }
        last.rows += rows;
        self.open = tile.line(row + rows, number);
        rows
    }
}

/// Returns the difference between the last `width` lines and the `width` lines before them, or `None` if it is not the
/// same for each line.
fn shift_of(lines: &[Line], width: usize) -> Option<Pair> {
    let [before, last] = [2, 1].map(|rows| &lines[lines.len() - rows * width..][..width]);
    let shift = last[0].first.minus(before[0].first);
    let is_shifted = |(before, last): (&Line, &Line)| before.plus(shift) == *last;
    before.iter().zip(last).all(is_shifted).then_some(shift)
}

/// One line in all rows of a tile.
struct Block {
    /// The index of the first pair.
    first: u32,
    rows: u32,
    /// The number of indices from a row to the next one.
    width: u32,
    shift: Pair,
    line: Line,
}

/// Appends to `found` the ranks of a colour in a block.
fn find(block: &Block, colour: u64, found: &mut Vec<Found>) {
    let distance = colour.wrapping_sub(block.line.first.colour);
    let (across, down) = (block.line.step.colour, block.shift.colour);
    let (columns, rows) = (block.line.len, block.rows);
    match (down, across) {
        (0, _) => block.emit(Numbers::all(rows), Numbers::solve(across, distance, columns), found),
        (_, 0) => block.emit(Numbers::solve(down, distance, rows), Numbers::all(columns), found),
        _ if rows <= columns => (0..rows).for_each(|row| {
            let rest = distance.wrapping_sub(down.wrapping_mul(row.into()));
            block.emit(Numbers::one(row), Numbers::solve(across, rest, columns), found);
        }),
        _ => (0..columns).for_each(|column| {
            let rest = distance.wrapping_sub(across.wrapping_mul(column.into()));
            block.emit(Numbers::solve(down, rest, rows), Numbers::one(column), found);
        }),
    }
}

impl Block {
    /// Appends to `found` the ranks in these rows and columns.
    fn emit(&self, rows: Numbers, columns: Numbers, found: &mut Vec<Found>) {
        let (across, down) = (self.line.step.key, self.shift.key);
        // The keys of one progression should not overlap the keys of the next one: then `in_order` need not sort the
        // ranks one by one.
        let by_row = rows.len == 1 || columns.len > 1 && down.unsigned_abs() >= across.unsigned_abs();
        let (outer, inner) = if by_row { (rows, columns) } else { (columns, rows) };
        for other in (0..outer.len).map(|number| outer.get(number)) {
            let (row, column) = if by_row { (other, inner.first) } else { (inner.first, other) };
            let key = self.line.pair(column).plus(self.shift.times(row)).key;
            let (distance, step) = if by_row { (1, across) } else { (self.width, down) };
            let indices = Indices {
                first: self.first + row * self.width + column,
                step: i64::from(distance) * i64::from(inner.step),
                len: inner.len,
            };
            if inner.len > 0 {
                found.push(Found { indices, key, step: step.wrapping_mul(inner.step.into()) });
            }
        }
    }
}

/// Numbers in arithmetic progression.
#[derive(Clone, Copy)]
struct Numbers {
    first: u32,
    step: u32,
    len: u32,
}

impl Numbers {
    fn all(len: u32) -> Self {
        Self { first: 0, step: 1, len }
    }

    fn one(number: u32) -> Self {
        Self { first: number, step: 1, len: 1 }
    }

    /// Returns the numbers below `end` that give `product` when multiplied by `factor`, modulo 2^64.
    fn solve(factor: u64, product: u64, end: u32) -> Self {
        // The factor is an odd number times 2^zeros. Odd numbers have an inverse.
        let zeros = factor.trailing_zeros();
        let none = Self { first: 0, step: 1, len: 0 };
        if zeros == u64::BITS {
            return if product == 0 { Self::all(end) } else { none };
        }
        if product.trailing_zeros() < zeros {
            return none;
        }
        let mask = u64::MAX >> zeros;
        let first = (product >> zeros).wrapping_mul(inverse(factor >> zeros)) & mask;
        match u32::try_from(first) {
            Ok(first) if first < end => {
                // The numbers repeat after `mask + 1`. If that is 2^32 or more, there is one number.
                let step = u32::try_from(mask).ok().and_then(|mask| mask.checked_add(1)).unwrap_or(u32::MAX);
                Self { first, step, len: (end - first).div_ceil(step) }
            }
            _ => none,
        }
    }

    fn get(self, number: u32) -> u32 {
        self.first + number * self.step
    }
}

/// Returns the inverse of an odd number modulo 2^64, by Newton's iteration: each step doubles the number of right bits,
/// of which there are three at first.
fn inverse(odd: u64) -> u64 {
    (0..5).fold(odd, |inverse, _| inverse.wrapping_mul(2u64.wrapping_sub(odd.wrapping_mul(inverse))))
}

/// Returns the indices ordered by key, then by index. They stay in progressions if the progressions do not overlap.
fn in_order(mut found: Vec<Found>) -> Vec<Indices> {
    if found.iter().all(Found::is_monotonic) {
        found.iter_mut().for_each(Found::ascend);
        found.sort_unstable_by_key(Found::first);
        if found.windows(2).all(|pair| pair[0].last() < pair[1].first()) {
            return found.into_iter().map(|found| found.indices).collect();
        }
    }
    let mut all: Vec<(i64, u32)> = found.iter().flat_map(Found::each).collect();
    all.sort_unstable();
    all.into_iter().map(|(_, first)| Indices { first, step: 1, len: 1 }).collect()
}

impl Found {
    /// Returns true if no key in the progression overflows.
    fn is_monotonic(&self) -> bool {
        let end = i128::from(self.step) * i128::from(self.indices.len - 1) + i128::from(self.key);
        i64::try_from(end).is_ok()
    }

    /// Reverses the progression if its keys descend.
    fn ascend(&mut self) {
        if self.step < 0 {
            let (key, first) = self.last();
            let Indices { step, len, .. } = self.indices;
            let step = step.wrapping_neg();
            *self = Self { indices: Indices { first, step, len }, key, step: self.step.wrapping_neg() };
        }
    }

    fn first(&self) -> (i64, u32) {
        (self.key, self.indices.first)
    }

    fn last(&self) -> (i64, u32) {
        self.at(self.indices.len - 1)
    }

    fn at(&self, number: u32) -> (i64, u32) {
        let index = i64::from(self.indices.first) + self.indices.step * i64::from(number);
        (self.key.wrapping_add(self.step.wrapping_mul(number.into())), index as u32)
    }

    fn each(&self) -> impl Iterator<Item = (i64, u32)> + '_ {
        (0..self.indices.len).map(|number| self.at(number))
    }
}

impl Tile {
    /// Returns a line of a row. If the row is the one behind the last row, returns the line with which the tile would
    /// continue.
    fn line(&self, row: u32, number: usize) -> Option<Line> {
        self.row.get(number).map(|line| line.plus(self.shift.times(row)))
    }
}

impl Line {
    fn of(pair: Pair) -> Self {
        Self { first: pair, step: Pair::ZERO, len: 1 }
    }

    /// Returns a pair of the line, or the pair with which the line would continue.
    fn pair(&self, number: u32) -> Pair {
        self.first.plus(self.step.times(number))
    }

    fn plus(self, shift: Pair) -> Self {
        Self { first: self.first.plus(shift), ..self }
    }

    fn read(words: &mut impl Iterator<Item = u64>) -> Option<Self> {
        let len = u32::try_from(words.next()?).ok().filter(|len| *len > 0)?;
        let first = Pair::read(words)?;
        let step = if len > 1 { Pair::read(words)? } else { Pair::ZERO };
        Some(Self { first, step, len })
    }
}

impl Pair {
    const ZERO: Self = Self { colour: 0, key: 0 };

    fn plus(self, other: Self) -> Self {
        Self { colour: self.colour.wrapping_add(other.colour), key: self.key.wrapping_add(other.key) }
    }

    fn minus(self, other: Self) -> Self {
        Self { colour: self.colour.wrapping_sub(other.colour), key: self.key.wrapping_sub(other.key) }
    }

    fn times(self, factor: u32) -> Self {
        Self { colour: self.colour.wrapping_mul(factor.into()), key: self.key.wrapping_mul(factor.into()) }
    }

    fn to_words(self) -> [u64; 2] {
        [self.colour, self.key as u64]
    }

    fn read(words: &mut impl Iterator<Item = u64>) -> Option<Self> {
        Some(Self { colour: words.next()?, key: words.next()? as i64 })
    }
}

#[cfg(test)]
mod tests;
