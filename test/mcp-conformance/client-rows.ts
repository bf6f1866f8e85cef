/** Scenarios of the suite for clients, run against `mcp://`. */
import type { ConformanceRow } from "./table.ts";

export const clientRows: readonly ConformanceRow[] = [];
