//! Inputs made of others: the same sequence for the same seed.

/// Tokens that parsers of this server treat specially.
const TOKENS: &[&[u8]] = &[
    b"\0",
    b"{",
    b"}",
    b"[",
    b"]",
    b"\"",
    b"\\u0000",
    b"\\ud800",
    b"null",
    b"true",
    b"-0",
    b"1e999",
    b"9223372036854775807",
    b"-9223372036854775808",
    b"18446744073709551616",
    b"0.1",
    b"&a ",
    b"*a",
    b"<<: *a",
    b"!!binary ",
    b"? ",
    b"- ",
    b"|2-\n",
    b"---\n",
    b"%",
    b"%00",
    b"%2F",
    b"%zz",
    b";",
    b"&",
    b"=",
    b"+",
    b"/..",
    b"//",
    b",",
    b"!=",
    b" in (",
    b" notin (",
    b")",
    b"$patch",
    b"$setElementOrder/containers",
    b"$deleteFromPrimitiveList/finalizers",
    b"$retainKeys",
    b"metadata",
    b"managedFields",
    b"ownerReferences",
    b"f:",
    b"k:{\"name\":\"a\"}",
    b"/-",
    b"/0",
    b"~1",
    b"k8s\0",
    b"\xff\xff\xff\xff\x0f",
    b"\x80",
    b"\x9b\xff\xff\xff\xff\xff\xff\xff\xff",
    b"\xef\xbb\xbf",
    b"\xed\xa0\x80",
    b"Ki",
    b"e-9",
    b"[*]",
    b"?(@.a==\"b\")",
    b"..",
    b".all(x, ",
    b".map(x, ",
    b".matches('(a+)+')",
    b"'",
    b"-----BEGIN ",
    b"-----END ",
    b"\n",
    b"\r\n",
];

/// The longest input.
const LONGEST: usize = 16 * 1024;

/// Makes inputs of a corpus.
#[derive(Debug)]
pub struct Mutator {
    state: u64,
    corpus: Vec<Vec<u8>>,
}

impl Mutator {
    /// One with a corpus and a seed.
    pub fn new(corpus: Vec<Vec<u8>>, seed: u64) -> Self {
        Mutator {
            state: seed | 1,
            corpus,
        }
    }

    /// A number below `bound`; 0 for the bound 0.
    fn below(&mut self, bound: usize) -> usize {
        // xorshift64*: the sequence has to be the same on every machine, and need not be better.
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        let high = self.state.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33;
        usize::try_from(high).unwrap_or_default() % bound.max(1)
    }

    /// The next input.
    pub fn next_input(&mut self) -> Vec<u8> {
        let pick = self.below(self.corpus.len());
        let mut input = self.corpus.get(pick).cloned().unwrap_or_default();
        for _ in 0..=self.below(6) {
            self.change(&mut input);
        }
        input.truncate(LONGEST);
        input
    }

    fn change(&mut self, input: &mut Vec<u8>) {
        let at = self.below(input.len() + 1);
        match self.below(8) {
            0 => {
                if let Some(byte) = input.get_mut(at) {
                    *byte ^= 1 << (self.state % 8);
                }
            }
            1 => {
                let byte = u8::try_from(self.below(256)).unwrap_or_default();
                input.insert(at, byte);
            }
            2 => {
                let length = self.below(16).min(input.len() - at);
                input.drain(at..at + length);
            }
            3 => {
                // Repetition is what finds work that grows too fast.
                let length = self.below(64).min(input.len() - at);
                let part = input[at..at + length].repeat(1 + self.below(40));
                input.splice(at..at, part);
            }
            4 => {
                let other = self.below(self.corpus.len());
                let other = self.corpus.get(other).cloned().unwrap_or_default();
                let from = self.below(other.len() + 1);
                input.truncate(at);
                input.extend_from_slice(&other[from..]);
            }
            5 => {
                let token = TOKENS[self.below(TOKENS.len())];
                let end = (at + token.len()).min(input.len());
                input.splice(at..end, token.iter().copied());
            }
            _ => {
                let token = TOKENS[self.below(TOKENS.len())];
                input.splice(at..at, token.iter().copied());
            }
        }
    }
}
