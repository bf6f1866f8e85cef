/**
 * What a module has left open: servers, sockets, watchers, programs and timers that repeat. It wants to live on
 * with them, which a module that is loaded for one call does not.
 */

/** As Node names what keeps a process alive; requests under way are not among them. */
const kinds = new Map([
  ["TCPServerWrap", "a server"],
  ["TCPSocketWrap", "a connection"],
  ["TLSWrap", "a connection"],
  ["PipeServerWrap", "a server"],
  ["PipeWrap", "a pipe"],
  ["UDPWRAP", "a socket"],
  ["FSEventWrap", "a watched file"],
  ["StatWatcher", "a watched file"],
  ["ProcessWrap", "a program"],
  ["Worker", "a thread"],
]);

const intervals = new Set<unknown>();

/** Timers that repeat look like others to Node, so they are counted. To be called before the module is loaded. */
export function countIntervals(): void {
  const { setInterval: start, clearInterval: stop } = globalThis;
  const counted = (...args: Parameters<typeof start>): ReturnType<typeof start> => {
    const timer = start(...args);
    intervals.add(timer);
    return timer;
  };
  globalThis.setInterval = Object.assign(counted, start);
  globalThis.clearInterval = (timer) => {
    for (const each of intervals) if (each === timer || Number(each) === Number(timer)) intervals.delete(each);
    stop(timer);
  };
}

export interface Resources {
  /** What is open now and was not at the beginning, for people. */
  opened(): readonly string[];
}

export function watchResources(): Resources {
  const before = process.getActiveResourcesInfo();
  return {
    opened() {
      const left = [...before];
      const found = process.getActiveResourcesInfo().flatMap((kind) => {
        const at = left.indexOf(kind);
        if (at >= 0) left.splice(at, 1);
        const name = kinds.get(kind);
        return at >= 0 || name === undefined ? [] : [name];
      });
      return [...new Set([...found, ...(intervals.size > 0 ? ["a timer that repeats"] : [])])].sort();
    },
  };
}
