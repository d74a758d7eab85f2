// The document about the server that is no metric, and repeated work.

import { get, pause } from './api.js';
import { note, replace } from './dom.js';
import { span } from './format.js';

export const status = (signal) => get('/debug/status', { signal });

// Calls now and then until the signal fires, while the page is visible. `told` says how old the last success is when it is of the past.
export async function every(milliseconds, signal, work, told) {
  let last = Date.now();
  for (;;) {
    await pause(milliseconds, signal);
    if (signal.aborted) return;
    if (document.hidden) continue;
    try {
      await work();
      last = Date.now();
      if (told) replace(told);
    } catch (error) {
      if (!signal.aborted && error.status === undefined) throw error;
      const age = Date.now() - last;
      if (told && !signal.aborted && age > 2 * milliseconds) replace(told, note('warn', `As of ${span(age / 1000)} ago. ${error.message}`));
    }
  }
}
