// The document about the server that is no metric, and repeated work.

import { get, pause } from './api.js';

export const status = (signal) => get('/debug/status', { signal });

// Calls now and then until the signal fires, while the page is visible.
export async function every(milliseconds, signal, work) {
  for (;;) {
    await pause(milliseconds, signal);
    if (signal.aborted) return;
    if (document.hidden) continue;
    try {
      await work();
    } catch (error) {
      if (!signal.aborted && error.status === undefined) throw error;
    }
  }
}
