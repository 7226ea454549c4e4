//! The map between bytes and the printable characters that stand for them in byte-level vocabularies.

/// The character that stands for a byte: itself where it is printable, otherwise the next free one from U+0100.
const TO_CHAR: [char; 256] = {
    let mut map = ['\0'; 256];
    let (mut byte, mut other) = (0usize, 0x100u32);
    while byte < 256 {
        let printable = matches!(byte, 0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF);
        map[byte] = match char::from_u32(if printable { byte as u32 } else { other }) {
            Some(c) => c,
            None => panic!("no code point above U+0143 is in the map"),
        };
        if !printable {
            other += 1;
        }
        byte += 1;
    }
    map
};

/// The bytes of the characters up to U+0143, the last one of the map.
const TO_BYTE: [Option<u8>; 0x144] = {
    let mut map = [None; 0x144];
    let mut byte = 0usize;
    while byte < 256 {
        map[TO_CHAR[byte] as usize] = Some(byte as u8);
        byte += 1;
    }
    map
};

/// Replaces `out` by the characters that stand for the bytes of `text`.
pub(super) fn encode(text: &str, out: &mut String) {
    out.clear();
    out.extend(text.bytes().map(|byte| TO_CHAR[byte as usize]));
}

/// The byte that a character stands for.
pub(super) fn decode(c: char) -> Option<u8> {
    TO_BYTE.get(c as usize).copied().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_has_a_character_of_its_own() {
        assert_eq!((TO_CHAR[0x20], TO_CHAR[0x0A], TO_CHAR[0xFF]), ('\u{120}', '\u{10a}', '\u{ff}'));
        assert!(TO_CHAR.into_iter().zip(0..=255).all(|(c, byte)| decode(c) == Some(byte)));
        assert_eq!([' ', '\u{ad}', '\u{144}', '\u{1F600}'].map(decode), [None; 4]);
    }
}
