// The certificates that the server shows and trusts, and when they end.

import { badge, h, heading, panel, replace, table } from './dom.js';
import { date, span } from './format.js';
import { every, status } from './status.js';

const SOON = 14 * 86400;

function state({ notBefore, notAfter, error }) {
  const now = Date.now() / 1000;
  if (error) return badge('unreadable', 'bad');
  if (notAfter <= now) return badge('expired', 'bad');
  if (notBefore > now) return badge('not valid yet', 'bad');
  return notAfter - now < SOON ? badge(`ends in ${span(notAfter - now)}`, 'warn') : badge('valid', 'good');
}

export async function showCertificates(main, signal) {
  const [told, place] = [h('div'), h('div')];
  main.append(heading('Certificates', { sub: 'The server’s own are renewed while it runs; those that flags name are read again when their files change.' }), told, place);
  const draw = async () => {
    const { certificates } = await status(signal);
    const rows = [...certificates].sort((a, b) => (a.notAfter ?? 0) - (b.notAfter ?? 0)).map((one) => [one.purpose, state(one),
      one.notAfter ? span(one.notAfter - Date.now() / 1000) : '–', one.notAfter ? date(one.notAfter) : one.error, one.notBefore ? date(one.notBefore) : '–']);
    replace(place, panel('Certificates', 'those that end first come first', table('Certificates', [{ title: 'Purpose', head: true }, { title: 'State' }, { title: 'Left', number: true }, { title: 'Ends' }, { title: 'Begins' }], rows)));
  };
  await draw();
  every(30_000, signal, draw, told);
}
