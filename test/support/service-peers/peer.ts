/**
 * Back ends that stand behind tool services, each with every operation of its scheme: real programs where they
 * can be started, servers with the wire of the real ones where they cannot. The suite that calls them through
 * invoke and through chat, and `npm run test:services`, run over the list in `index.ts`.
 */
import type { ToolScheme } from "@toolyard/core/tools/uri";
import type { Json } from "../gateway-client.ts";

export interface PeerOperation {
  /** Tool id, as it stands in the URI. */
  readonly tool: string;
  /** Absent: the tool itself; for several calls of one tool. */
  readonly what?: string;
  readonly arguments: Json;
  /** What the tool's text has to hold. */
  readonly gives: RegExp;
  /** How often it has happened at the back end; absent: it leaves nothing to count. */
  readonly count?: () => number | Promise<number>;
}

export interface RunningPeer {
  readonly config: Json;
  readonly operations: readonly PeerOperation[];
  close(): Promise<void>;
}

export interface ServicePeer {
  readonly scheme: ToolScheme;
  /** Unique within the scheme. */
  readonly name: string;
  /** Why it cannot be started here; undefined: it can. */
  readonly absent?: string | undefined;
  /** What it takes that not every run of the tests can have; undefined: hardly anything. */
  readonly takes?: string;
  start(place: PeerPlace): Promise<RunningPeer>;
}

/** `npm run test:services` runs the tests: `on`, or `required` where whatever is absent is a failure. */
export const servicesRun = process.env["TOOLYARD_SERVICES"];

/** Why it is skipped in this run; undefined: it is not. */
export function whySkipped({ absent, takes }: ServicePeer): string | undefined {
  if (servicesRun === "required") return undefined;
  if (absent !== undefined) return absent;
  return takes === undefined || servicesRun !== undefined ? undefined : `takes ${takes}; npm run test:services`;
}

export interface PeerPlace {
  /** A directory of the suite, which programs of the operator may read. */
  readonly home: string;
}
