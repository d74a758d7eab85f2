//! Values and run-time errors.

use super::evaluate;
use crate::Val;

/// Every expression must be true.
#[track_caller]
fn holds(sources: &[&str]) {
    for source in sources {
        evaluate(source, |result, _| {
            assert!(matches!(result, Ok(Val::Bool(true))), "{source}: {result:?}")
        });
    }
}

/// Every expression must fail with this text.
#[track_caller]
fn fails(cases: &[(&str, &str)]) {
    for (source, want) in cases {
        evaluate(source, |result, _| match result {
            Ok(val) => panic!("{source}: {val:?}"),
            Err(error) => assert_eq!(error.to_string(), *want, "{source}"),
        });
    }
}

#[test]
fn the_language() {
    holds(&[
        "1 + 2 * 3 == 7 && 7 / 2 == 3 && -7 / 2 == -3 && 7 % 3 == 1 && 2u + 3u == 5u && 1.5 + 1.5 == 3.0",
        "-(-1) == 1 && --1 == 1 && !!true && !false",
        "1 < 2 && 2 <= 2 && 3 > 2 && 'a' < 'b' && b'a' < b'b' && 1 < 2u && 1.5 > 1 && 2u < 2.5",
        "dyn(1) == 1u && dyn(1) == 1.0 && dyn(1) != 'a' && null == null",
        "'a' + 'b' == 'ab' && b'a' + b'b' == b'ab' && [1] + [2] == [1, 2]",
        r#""\u0041\x41\101\n" == "AAA\n""#,
        r#"r'\d' == "\\d" && '''a'b''' == "a'b" && """x""" == 'x' && b'\xff'.size() == 1 && '\x41' == 'A'"#,
        "true ? 1 == 1 : 1 / 0 == 1",
        "(1 / 0 == 1 || true) && !(1 / 0 == 1 && false)",
        "1 in [1, 2] && !(3 in [1, 2]) && 'a' in {'a': 1} && 1.0 in [1.0, 2.0]",
        "{'a': 1, 'b': 2}.size() == 2 && {'a': 1}['a'] == 1 && {'a': 1}.a == 1 && {1: 'x'}[1] == 'x' && {1: 'x'}[dyn(1u)] == 'x'",
        "[1, 2, 3][1] == 2 && size('héllo') == 5 && b'héllo'.size() == 6",
        "type(1) == int && type('') == string && type(int) == type && type([]) == list && type({}) == map && type(null) == null_type",
        "type(duration('1s')) == google.protobuf.Duration && type(ip('1.2.3.4')) == net.IP",
        "has({'a': 1}.a) && !has({'a': 1}.b)",
        ".self.i == 3 // a comment",
        "0x10 == 16 && 1e3 == 1000.0 && 9223372036854775807 > 0 && -9223372036854775808 < 0 && 0xFFu == 255u",
    ]);
}

#[test]
fn macros() {
    holds(&[
        "[1, 2, 3].all(x, x > 0) && [1, 2, 3].exists(x, x == 2) && [1, 2, 2].exists_one(x, x == 1) && [1].existsOne(x, x == 1)",
        "[1, 2, 3].map(x, x * 2) == [2, 4, 6] && [1, 2, 3].map(x, x > 1, x * 2) == [4, 6] && [1, 2, 3].filter(x, x != 2) == [1, 3]",
        "[[1, 2], [3]].map(x, x.map(y, y + 1)) == [[2, 3], [4]]",
        "{'a': 1, 'b': 2}.all(k, k in ['a', 'b']) && {'a': 1}.map(k, k) == ['a']",
        "[1, 0].exists(x, 1 / x == 1) && ![0, 2].all(x, 1 / x == 2)",
        "[5, 6].all(i, v, v == i + 5) && {'a': 1}.exists(k, v, k == 'a' && v == 1) && [7].existsOne(i, v, v == 7)",
        "[1, 2].transformList(i, v, v * i) == [0, 2] && [1, 2].transformList(i, v, i > 0, v) == [2]",
        "{'a': 1}.transformMap(k, v, v + 1) == {'a': 2} && {'a': 1, 'b': 2}.transformMap(k, v, v > 1, v) == {'b': 2}",
        "{'a': 'b'}.transformMapEntry(k, v, {v: k}) == {'b': 'a'} && ['x'].transformMap(i, v, v) == {0: 'x'}",
        "optional.of(1).optMap(x, x + 1).value() == 2 && !optional.none().optMap(x, x).hasValue()",
        "optional.of([1]).optFlatMap(x, x[?0]).value() == 1 && optional.of([]).optFlatMap(x, x[?0]) == optional.none()",
        "[3, 1, 2].sortBy(x, -x) == [3, 2, 1]",
    ]);
    fails(&[
        ("[1, 0].map(x, 1 / x) == []", "division by zero"),
        (
            "{'a': 1, 'b': 2}.transformMapEntry(k, v, {'x': v}) == {'x': 1}",
            "insert failed: key x already exists",
        ),
    ]);
}

#[test]
fn optionals() {
    holds(&[
        "self.?i.value() == 3 && self.nested.?inner.?k == optional.of('z') && self.nested.?inner.k.value() == 'z'",
        "self.map[?'one'].value() == '1' && !self.map[?'none'].hasValue() && self.ints[?9].orValue(7) == 7",
        "self.map.?none.or(self.map.?one).value() == '1' && optional.none().orValue(5) == 5",
        "[1, ?optional.of(2), ?optional.none()] == [1, 2] && {?'a': optional.of(1), ?'b': optional.none()} == {'a': 1}",
        "optional.ofNonZeroValue('') == optional.none() && optional.ofNonZeroValue(1).hasValue()",
        "[1, 2].first().value() == 1 && [1, 2].last().value() == 2 && [].first() == optional.none()",
        "optional.unwrap([optional.of(1), optional.none()]) == [1] && [optional.of(1)].unwrapOpt() == [1]",
        "!has(self.?map.none) && has(self.?map.one)",
    ]);
    fails(&[("optional.none().value() == 1", "optional.none() dereference")]);
}

#[test]
fn declared_data() {
    holds(&[
        "self.b && self.i == 3 && self.d == 2.0 && type(self.d) == double && self.s.size() == 5",
        "self.bytes == b'hello' && self.date.getFullYear() == 2021 && self.at.getHours() == 3 && self.dur.getSeconds() == 90",
        "self.dur == duration('1m30s') && self.at > self.date && self.at - self.date == duration('3h4m5s')",
        "type(self.either) == string && self.either.endsWith('%')",
        "self.any.x[0] == 1 && self.any.x[1] == 'a' && self.any.x[2] == 1.5",
        "self.__namespace__ == 'ns' && self.namespace == 'ns' && has(self.namespace) && self.with__dash__dash == 'dash'",
        "!has(self.maybe) && has(self.s) && has(self.nested.inner.k)",
        "self.keyed == oldSelf.keyed && self.set == oldSelf.set && !has(self.maybe)",
        "self.keyed == oldSelf.keyed",
        "self.set == oldSelf.set && self.set != ['x'] && self.ints != [1, 2, 3]",
        "(self.keyed + [self.keyed[0]]).size() == 2 && (self.set + ['x', 'z']).size() == 3 && (self.ints + [3]).size() == 4",
        "(self.keyed + oldSelf.keyed).size() == 2",
        "self.i != oldSelf.i && self.nested == oldSelf.nested && self != oldSelf",
        "self.keyed.all(e, e.v > 0) && self.map.all(k, self.map[k] != '') && 'x' in self.set && 'one' in self.map",
        "self.keyed.exists(e, e == oldSelf.keyed[0])",
    ]);
    fails(&[
        ("self.map['three'] == '3'", "no such key: three"),
        ("self.map.three == '3'", "no such key: three"),
        ("self.ints[3] == 1", "index out of bounds: 3"),
        ("self.ints[-1] == 1", "index out of bounds: -1"),
        ("self.any.y == 1", "no such key: y"),
        ("self.maybe == 'a'", "no such key: maybe"),
        ("self.any.x.z == 1", "unsupported index type 'string' in list"),
        ("self.either < 5", "no such overload"),
        ("self.either + 5 == 1", "no such overload"),
        ("self.any + 5 == 1", "no such overload: _+_"),
        ("1 / (self.i - 3) == 1", "division by zero"),
        ("1 % (self.i - 3) == 1", "modulus by zero"),
        ("9223372036854775807 + self.i > 0", "integer overflow"),
        ("uint(self.i) - 4u == 0u", "unsigned integer overflow"),
        ("int(self.s) == 1", "type conversion error from 'string' to 'int'"),
        (
            "self.any.x[1].getHours() == 1",
            "no such overload: getHours(string)",
        ),
        ("dyn(1).contains('a')", "no such overload: contains(int, string)"),
    ]);
}

#[test]
fn conversions() {
    holds(&[
        "int('5') == 5 && int(5.9) == 5 && int(-5.9) == -5 && uint('7') == 7u && double('1.5') == 1.5 && int(timestamp('1970-01-01T00:00:01Z')) == 1",
        "string(5) == '5' && string(1.5) == '1.5' && string(true) == 'true' && string(b'ab') == 'ab' && string(1e10) == '1e+10'",
        "string(duration('1h30m')) == '5400s' && string(timestamp('2020-01-01T00:00:00.5Z')) == '2020-01-01T00:00:00.5Z'",
        "bool('true') && !bool('F') && bytes('a') == b'a' && duration('1.5s').getMilliseconds() == 1500",
        "duration('1m') + duration('1s') == duration('61s') && timestamp('2020-01-01T00:00:00Z') + duration('24h') == timestamp('2020-01-02T00:00:00Z')",
        "timestamp('2020-01-31T23:30:00Z').getDate('+01:00') == 1 && timestamp('2020-01-31T23:30:00Z').getMonth('-01:00') == 0",
        "timestamp('2021-03-04T05:06:07.089Z').getMilliseconds() == 89 && timestamp('2021-03-04T05:06:07Z').getDayOfWeek() == 4 && timestamp('2021-03-04T05:06:07Z').getDayOfYear() == 62",
        "timestamp(0) == timestamp('1970-01-01T00:00:00Z')",
    ]);
    fails(&[("int(1e300 * self.d) == 1", "integer overflow")]);
}

#[test]
fn strings() {
    holds(&[
        "'hello'.charAt(1) == 'e' && 'hello'.charAt(5) == '' && 'hello'.indexOf('l') == 2 && 'hello'.indexOf('l', 3) == 3 && 'hello'.lastIndexOf('l') == 3",
        "'hello'.lastIndexOf('l', 2) == 2 && 'hello'.indexOf('') == 0 && 'hello'.lastIndexOf('') == 5 && 'hello'.indexOf('z') == -1",
        "'héllo'.substring(1, 3) == 'él' && 'héllo'.substring(2) == 'llo' && 'Ab'.lowerAscii() == 'ab' && 'Ab'.upperAscii() == 'AB'",
        "'a b c'.replace(' ', '') == 'abc' && 'a b c'.replace(' ', '', 1) == 'ab c' && 'ab'.replace('', '-') == '-a-b-'",
        "'a,b,c'.split(',') == ['a', 'b', 'c'] && 'a,b,c'.split(',', 2) == ['a', 'b,c'] && 'abc'.split('') == ['a', 'b', 'c'] && 'a'.split(',', 0) == []",
        "['a', 'b'].join() == 'ab' && ['a', 'b'].join(', ') == 'a, b' && '  x '.trim() == 'x' && strings.quote('a\"b') == '\"a\\\\\"b\"'",
        "'abc'.startsWith('a') && 'abc'.endsWith('c') && 'abc'.contains('b') && 'abc'.matches('^a.c$') && matches('abc', 'b')",
        "'abc 123'.find('[0-9]+') == '123' && 'a1b2'.findAll('[0-9]') == ['1', '2'] && 'a1b2'.findAll('[0-9]', 1) == ['1'] && 'a'.find('z') == ''",
        "'a1'.matches(self.map.one) && 'x'.find(self.short + '?') == ''",
        "'%d %s %f %s %s'.format([1, 'abc', 1.0, duration('1m'), timestamp('2000-01-01T00:00:00.000Z')]) == '1 abc 1.000000 60s 2000-01-01T00:00:00Z'",
        "'%e'.format([3.14]) == '3.140000×10⁰⁰'",
        "'%o %b %x %X %%'.format([8, 5, 255, 'hi']) == '10 101 ff 6869 %' && '%s'.format([[1, 'a']]) == '[1, \"a\"]'",
        "'%.2f'.format([1234.567]) == '1,234.57'",
    ]);
    fails(&[
        ("'a'.charAt(self.i) == ''", "index out of range: 3"),
        (
            "'a'.substring(2, 1) == ''",
            "invalid substring range. start: 2, end: 1",
        ),
        ("'a'.substring(0, 4) == ''", "index out of range: 4"),
        (
            "(self.short + '%d').format([self.s]) == ''",
            "error during formatting: decimal clause can only be used on integers, was given string",
        ),
    ]);
}

#[test]
fn lists_and_sets() {
    holds(&[
        "[1, 2].isSorted() && ![2, 1].isSorted() && [1, 2].sum() == 3 && [1.5, 1.5].sum() == 3.0 && [duration('1s')].sum() == duration('1s')",
        "self.ints.filter(x, x > 9).sum() == 0 && [1, 3, 2].max() == 3 && ['b', 'a'].min() == 'a'",
        "[1, 2, 1].indexOf(1) == 0 && [1, 2, 1].lastIndexOf(1) == 2 && [1].indexOf(5) == -1",
        "sets.contains([1, 2], [2]) && sets.equivalent([1, 2], [2, 1, 1]) && sets.intersects([1], [1, 2]) && !sets.intersects([3], [1])",
        "[1, 2, 3, 4].slice(1, 3) == [2, 3] && [[1, 2], [3]].flatten(1) == [1, 2, 3]",
        "[[1, 2], [3]].flatten() == [1, 2, 3] && [3, 1].sort() == [1, 3] && [1, 2].reverse() == [2, 1] && [1, 1, 2].distinct() == [1, 2] && lists.range(3) == [0, 1, 2]",
        "self.keyed.sortBy(e, e.v).map(e, e.k) == ['a', 'b']",
        "lists.range(64).map(i, i % 3 == 0 ? 0.0 / 0.0 : double((i * 37) % 64)).sort().slice(22, 64).isSorted()",
    ]);
    fails(&[
        (
            "self.ints.filter(x, x > 9).max() == 0",
            "max called on empty list",
        ),
        ("[1].slice(0, 2) == []", "cannot slice(0, 2), list is length 1"),
        (
            "lists.range(1000000000).size() == 1",
            "operation cancelled: actual cost limit exceeded",
        ),
    ]);
}

#[test]
fn kubernetes_types() {
    holds(&[
        "url('https://u:p@example.com:80/a%20b?x=1&x=2&y=#f').getHost() == 'example.com:80' && url('https://example.com:80/').getPort() == '80'",
        "url('https://[::1]:80/').getHostname() == '::1' && url('https://example.com/').getScheme() == 'https' && url('/path').getHost() == ''",
        "url('https://e.com/a b').getEscapedPath() == '/a%20b' && url('https://e.com/?k1=a&k1=b&k2=').getQuery()['k1'] == ['a', 'b']",
        "isURL('https://a.b/c') && !isURL('a.b/c') && !isURL('../x') && isURL('/abs') && !isURL('https://a:b:c/') && url('https://a/') == url('https://a/')",
        "isIP('1.2.3.4') && !isIP('1.2.3') && isIP('::1') && !isIP('::ffff:1.2.3.4') && ip('1.2.3.4').family() == 4 && ip('::1').isLoopback()",
        "ip.isCanonical('::1') && !ip.isCanonical('0:0::1') && ip('0.0.0.0').isUnspecified() && ip('224.0.0.1').isLinkLocalMulticast() && ip('fe80::1').isLinkLocalUnicast() && ip('8.8.8.8').isGlobalUnicast()",
        "string(ip('0:0::1')) == '::1' && ip('1.2.3.4') == ip('1.2.3.4') && cidr('10.0.0.0/8').containsIP('10.1.2.3') && cidr('10.0.0.0/8').containsCIDR('10.1.0.0/16')",
        "!cidr('10.0.0.0/8').containsCIDR(cidr('0.0.0.0/0')) && cidr('10.1.2.3/8').masked() == cidr('10.0.0.0/8') && cidr('10.0.0.0/8').prefixLength() == 8 && cidr('10.1.0.0/8').ip() == ip('10.1.0.0')",
        "isCIDR('::/0') && !isCIDR('1.2.3.4') && !isCIDR('1.2.3.4/33') && string(cidr('10.0.0.0/8')) == '10.0.0.0/8'",
        "quantity('200M') == quantity('0.2G') && quantity('50Mi').isGreaterThan(quantity('50M')) && quantity('1').compareTo(quantity('2')) == -1",
        "quantity('50k').add(quantity('20')) == quantity('50.02k') && quantity('50k').sub(20) == quantity('49980') && quantity('50').isInteger() && quantity('50k').asInteger() == 50000",
        "!quantity('50.7').isInteger() && quantity('50.703k').asInteger() == 50703 && quantity('1.5').asApproximateFloat() == 1.5 && sign(quantity('-1')) == -1",
        "isQuantity('20Mi') && !isQuantity('20Mo') && !isQuantity('') && isQuantity('1e3') && !isQuantity('abc') && quantity('1e3') == quantity('1k')",
        "semver('1.2.3').isLessThan(semver('1.10.0')) && semver('1.0.0-rc1').isLessThan(semver('1.0.0')) && semver('v1.2', true) == semver('1.2.0') && semver('1.2.3').minor() == 2",
        "isSemver('1.0.0') && !isSemver('v1.0.0') && isSemver('v1.0.0', true) && semver('1.0.0+a').compareTo(semver('1.0.0+b')) == 0",
        "!format.dns1123Label().validate('my-name').hasValue() && format.dns1123Label().validate('My.Name').hasValue() && format.named('uuid').hasValue() && !format.named('x').hasValue()",
        "format.dns1123Label().validate('a.b').value() == ['must not contain dots'] && !format.dns1123LabelPrefix().validate('my-').hasValue() && format.labelValue().validate('-').hasValue()",
        "!format.uuid().validate('d6d6f5b4-29f2-4c3a-9f3e-5a3bd8b5a3a1').hasValue() && format.date().validate('2021-13-01').value() == ['invalid date'] && !format.datetime().validate('2021-01-01T00:00:00Z').hasValue() && !format.byte().validate('aGk=').hasValue()",
    ]);
    fails(&[
        (
            "quantity(self.s) == quantity('1')",
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
        ),
        (
            "quantity('1Mo') == quantity('1')",
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
        ),
        (
            "semver(self.short) == semver('1.0.0')",
            "No Major.Minor.Patch elements found",
        ),
        (
            "url(self.s) == url('https://a/')",
            "URL parse error during conversion from string: parse \"héllo\": invalid URI for request",
        ),
        (
            "quantity('1.5').asInteger() == 1",
            "cannot convert value to integer",
        ),
        (
            "ip('::ffff:1.2.3.4') == ip('::1')",
            "IPv4-mapped IPv6 address \"::ffff:1.2.3.4\" is not allowed",
        ),
    ]);
}
