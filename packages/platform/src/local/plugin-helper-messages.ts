/** What a process and its helper for plugins say to each other; both are of one release, and forked, not met. */
import type { ErrorCode } from "@toolyard/core/errors/catalog";
import type { LogLevel } from "@toolyard/core/ports/log";
import type { PluginExit, PluginRun } from "@toolyard/core/ports/plugin-runner";
import type { StartedPlace } from "./process-plugin-runner.ts";

export interface HelperOptions {
  /** PATH of plugins. */
  readonly path: string;
  readonly temporaryDirectory?: string;
  /** `never`: plugins run with the rights of our user, also where there could be a wall. */
  readonly wall: "where-possible" | "never";
}

/** A file travels once; later runs name it. */
export interface SentFile {
  readonly path: string;
  readonly body?: Uint8Array;
  readonly number?: number;
}

export type SentRun = Omit<PluginRun, "signal" | "onStdout" | "onExit" | "files"> & {
  readonly files: readonly SentFile[];
  readonly wantsStdout: boolean;
  readonly wantsExit: boolean;
};

export type ToHelper =
  | { readonly type: "options"; readonly options: HelperOptions }
  | { readonly type: "run"; readonly id: number; readonly run: SentRun }
  | { readonly type: "abort"; readonly id: number }
  /** Numbers of files begin anew. */
  | { readonly type: "forget" };

export type FromHelper =
  /** Should the helper be lost, this is what it leaves behind. */
  | { readonly type: "started"; readonly id: number; readonly place: StartedPlace }
  | { readonly type: "stdout"; readonly id: number; readonly part: string }
  /** The plugin has ended; `exit` follows when nothing of it is left. */
  | { readonly type: "ended"; readonly id: number; readonly exit: PluginExit }
  | { readonly type: "exit"; readonly id: number; readonly exit: PluginExit }
  | {
      readonly type: "failed";
      readonly id: number;
      readonly code: ErrorCode;
      readonly message: string;
      readonly param?: string | undefined;
    }
  | {
      readonly type: "log";
      readonly level: LogLevel;
      readonly message: string;
      readonly fields: Readonly<Record<string, string>>;
    };
