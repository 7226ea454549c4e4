//! Reads and writes `tokenizer.model`: the pieces of a SentencePiece model, which is a protocol buffer.

use std::path::Path;

use super::super::{HfError, json};

/// One piece of the vocabulary.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Piece {
    pub text: String,
    pub score: f32,
    pub kind: PieceKind,
}

/// What a piece is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PieceKind {
    Normal,
    Unknown,
    Control,
    UserDefined,
    Unused,
    Byte,
}

/// Reads through one message.
struct Message<'a> {
    bytes: &'a [u8],
}

/// The value of a field.
enum Field<'a> {
    Number(u64),
    Fixed32([u8; 4]),
    Bytes(&'a [u8]),
    Fixed64,
}

impl<'a> Message<'a> {
    /// The next field and its number.
    fn next(&mut self) -> Option<Result<(u64, Field<'a>), &'static str>> {
        if self.bytes.is_empty() { None } else { Some(self.field()) }
    }

    fn field(&mut self) -> Result<(u64, Field<'a>), &'static str> {
        let key = self.varint()?;
        let field = match key & 7 {
            0 => Field::Number(self.varint()?),
            1 => self.take(8).map(|_| Field::Fixed64)?,
            2 => {
                let n = self.varint()?;
                Field::Bytes(self.take(n)?)
            }
            5 => Field::Fixed32(self.take(4)?.try_into().expect("4 bytes")),
            _ => return Err("a field of an unknown kind"),
        };
        Ok((key >> 3, field))
    }

    fn varint(&mut self) -> Result<u64, &'static str> {
        let mut value = 0;
        for i in 0..10 {
            let byte = self.take(1)?[0];
            value |= u64::from(byte & 0x7f) << (7 * i);
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err("a number of more than 64 bits")
    }

    fn take(&mut self, n: u64) -> Result<&'a [u8], &'static str> {
        let n = usize::try_from(n).ok().filter(|&n| n <= self.bytes.len()).ok_or("the file is truncated")?;
        let (taken, rest) = self.bytes.split_at(n);
        self.bytes = rest;
        Ok(taken)
    }
}

/// The pieces in the order of their ids, `None` if there is no such file.
pub(super) fn read(path: &Path) -> Result<Option<Vec<Piece>>, HfError> {
    let Some(bytes) = json::read_bytes(path)? else { return Ok(None) };
    let pieces = parse(&bytes).map_err(|e| HfError::file(path, format!("not a SentencePiece model: {e}")))?;
    if pieces.is_empty() {
        return Err(HfError::file(path, "not a SentencePiece model: it has no pieces"));
    }
    Ok(Some(pieces))
}

fn parse(bytes: &[u8]) -> Result<Vec<Piece>, &'static str> {
    let mut model = Message { bytes };
    let mut pieces = Vec::new();
    while let Some(field) = model.next() {
        if let (1, Field::Bytes(bytes)) = field? {
            pieces.push(piece(bytes)?);
        }
    }
    Ok(pieces)
}

fn piece(bytes: &[u8]) -> Result<Piece, &'static str> {
    let mut message = Message { bytes };
    let mut piece = Piece { text: String::new(), score: 0.0, kind: PieceKind::Normal };
    while let Some(field) = message.next() {
        match field? {
            (1, Field::Bytes(text)) => {
                piece.text = std::str::from_utf8(text).map_err(|_| "a piece is not UTF-8")?.to_owned();
            }
            (2, Field::Fixed32(bits)) => piece.score = f32::from_le_bytes(bits),
            (3, Field::Number(kind)) => {
                piece.kind = match kind {
                    2 => PieceKind::Unknown,
                    3 => PieceKind::Control,
                    4 => PieceKind::UserDefined,
                    5 => PieceKind::Unused,
                    6 => PieceKind::Byte,
                    _ => PieceKind::Normal,
                };
            }
            _ => {}
        }
    }
    Ok(piece)
}

/// Appends fields of one message.
#[derive(Default)]
struct Fields(Vec<u8>);

impl Fields {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn number(&mut self, field: u64, value: u64) {
        self.varint(field << 3);
        self.varint(value);
    }

    fn float(&mut self, field: u64, value: f32) {
        self.varint(field << 3 | 5);
        self.0.extend(value.to_le_bytes());
    }

    fn bytes(&mut self, field: u64, bytes: &[u8]) {
        self.varint(field << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend(bytes);
    }
}

/// A model of byte pairs with these pieces and, as far as they are known, the ids of the unknown token, of those that
/// begin and end a text, and of padding.
pub(crate) fn write(pieces: &[Piece], ids: [Option<u32>; 4], add_space_prefix: bool) -> Vec<u8> {
    let mut model = Fields::default();
    for piece in pieces {
        let mut fields = Fields::default();
        fields.bytes(1, piece.text.as_bytes());
        fields.float(2, piece.score);
        let kind = match piece.kind {
            PieceKind::Normal => 1,
            PieceKind::Unknown => 2,
            PieceKind::Control => 3,
            PieceKind::UserDefined => 4,
            PieceKind::Unused => 5,
            PieceKind::Byte => 6,
        };
        fields.number(3, kind);
        model.bytes(1, &fields.0);
    }
    let mut trainer = Fields::default();
    const BPE: u64 = 2;
    trainer.number(3, BPE);
    trainer.number(35, u64::from(pieces.iter().any(|piece| piece.kind == PieceKind::Byte)));
    for (field, id) in (40..).zip(ids) {
        // None is -1, which takes ten bytes.
        trainer.number(field, id.map_or(u64::MAX, u64::from));
    }
    model.bytes(2, &trainer.0);
    let mut normalizer = Fields::default();
    normalizer.bytes(1, b"identity");
    normalizer.number(3, u64::from(add_space_prefix));
    normalizer.number(4, 0);
    normalizer.number(5, 1);
    model.bytes(3, &normalizer.0);
    model.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_read_and_the_rest_is_skipped() {
        // A piece "a" of score 1 and kind byte, then a trainer specification of two bytes.
        let bytes = [0x0a, 10, 0x0a, 1, b'a', 0x15, 0, 0, 0x80, 0x3f, 0x18, 6, 0x12, 2, 0, 0];
        let expected = Piece { text: "a".to_owned(), score: 1.0, kind: PieceKind::Byte };
        assert_eq!(parse(&bytes).unwrap(), [expected]);
    }

    #[test]
    fn what_is_written_is_read_again() {
        use PieceKind::*;
        let kinds = [Unknown, Control, Normal, UserDefined, Unused, Byte];
        let pieces: Vec<Piece> = kinds
            .into_iter()
            .zip(0..)
            .map(|(kind, i)| Piece { text: "é".repeat(i * 40), score: -(i as f32), kind })
            .collect();
        assert_eq!(parse(&write(&pieces, [Some(0), None, Some(300), None], true)).unwrap(), pieces);
    }

    #[test]
    fn broken_models_are_errors() {
        assert_eq!(parse(&[0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f]), Err("the file is truncated"));
        assert_eq!(parse(&[0xff; 12]), Err("a number of more than 64 bits"));
        assert_eq!(parse(&[0x0b]), Err("a field of an unknown kind"));
        assert_eq!(parse(&[0x0a, 3, 0x0a, 1, 0xff]), Err("a piece is not UTF-8"));
    }
}
