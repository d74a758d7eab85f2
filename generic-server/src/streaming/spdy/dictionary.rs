//! The text that header blocks of SPDY/3 are compressed against (section 2.6.10.1 of the protocol).

/// The checksum (Adler-32) by which a compressed stream names it.
pub(super) const ID: u32 = 0xe3c6_a7c2;

/// Its first part, each word behind its length in four bytes.
const WORDS: &[&str] = &[
    "options",
    "head",
    "post",
    "put",
    "delete",
    "trace",
    "accept",
    "accept-charset",
    "accept-encoding",
    "accept-language",
    "accept-ranges",
    "age",
    "allow",
    "authorization",
    "cache-control",
    "connection",
    "content-base",
    "content-encoding",
    "content-language",
    "content-length",
    "content-location",
    "content-md5",
    "content-range",
    "content-type",
    "date",
    "etag",
    "expect",
    "expires",
    "from",
    "host",
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-range",
    "if-unmodified-since",
    "last-modified",
    "location",
    "max-forwards",
    "pragma",
    "proxy-authenticate",
    "proxy-authorization",
    "range",
    "referer",
    "retry-after",
    "server",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "user-agent",
    "vary",
    "via",
    "warning",
    "www-authenticate",
    "method",
    "get",
    "status",
    "200 OK",
    "version",
    "HTTP/1.1",
    "url",
    "public",
    "set-cookie",
    "keep-alive",
    "origin",
];

/// Its second part.
const REST: &str = "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505203 Non-Authoritativ\
    e Information204 No Content301 Moved Permanently400 Bad Request401 Unauthorized403 Forbidden404 Not Found500 I\
    nternal Server Error501 Not Implemented503 Service UnavailableJan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec \
    00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMTchunked,text/html,image/png,image/jpg,image/gif,application/xm\
    l,application/xhtml+xml,text/plain,text/javascript,publicprivatemax-age=gzip,deflate,sdchcharset=utf-8charset=\
    iso-8859-1,utf-,*,enq=0.";

/// The whole text.
pub(super) fn text() -> Vec<u8> {
    let mut text = Vec::with_capacity(1423);
    for word in WORDS {
        text.extend(u32::try_from(word.len()).unwrap_or_default().to_be_bytes());
        text.extend(word.as_bytes());
    }
    text.extend(REST.as_bytes());
    text
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_text_has_its_checksum() {
        let (mut a, mut b) = (1_u32, 0_u32);
        for byte in super::text() {
            a = (a + u32::from(byte)) % 65_521;
            b = (b + a) % 65_521;
        }
        assert_eq!(b << 16 | a, super::ID);
    }
}
