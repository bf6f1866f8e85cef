/** Connections of this machine, as Linux counts them. */
import { readFile } from "node:fs/promises";

const established = "01";

/** How many are open to a port of the loopback address; undefined: this system does not tell. */
export async function openTo(port: number): Promise<number | undefined> {
  const table = await readFile("/proc/net/tcp", "utf8").catch(() => undefined);
  const wanted = `0100007F:${port.toString(16).toUpperCase().padStart(4, "0")}`;
  return table
    ?.split("\n")
    .map((line) => line.trim().split(/\s+/))
    .filter(([, , remote, state]) => remote === wanted && state === established).length;
}
