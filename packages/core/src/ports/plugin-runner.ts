/**
 * Runs one plugin process for one call: fresh directory, scrubbed environment, own process group,
 * time, output and memory caps. Contract: test/contract/plugin-runner.ts.
 */
export interface PluginRun {
  readonly tenant: string;
  readonly command: readonly [string, ...string[]];
  /** The whole environment of the process beside PATH, HOME, TMPDIR and LANG. */
  readonly environment: Readonly<Record<string, string>>;
  /** Names of variables that hold the path of the fresh directory, for programs that want to be told it. */
  readonly directoryVariables?: readonly string[];
  readonly stdin: string;
  readonly timeoutMs: number;
  readonly maxOutputBytes: number;
  readonly signal?: AbortSignal;
  /** Files laid into the fresh directory before the start. */
  readonly files?: readonly { readonly path: string; readonly body: Uint8Array }[];
  /** Further ones, fetched by the runner itself; only for runners with `carriesBytes`. */
  readonly linked?: readonly LinkedFile[];
  /**
   * Called with each part of stdout as soon as it is there, no character cut in two: an asynchronous
   * plugin answers first and works on. All parts together are `PluginExit.stdout`.
   */
  readonly onStdout?: (part: string) => void;
  /**
   * Called, by runners that can, when the plugin has ended and before what it left is removed: for whoever wants the
   * answer and not the order.
   */
  readonly onExit?: (exit: PluginExit) => void;
  /**
   * An asynchronous VCP plugin (vcp/async/first-answer.ts): within so many milliseconds it has answered, or the
   * run ends as `timeout`. What it writes after its answer is neither kept nor told, nor limited.
   */
  readonly answerWithinMs?: number;
  /**
   * A server of JSON-RPC in lines, as MCP's are: the end of its input tells it to leave, so the input stays open until
   * it has answered the request of this id. It is ended if it does not leave then.
   */
  readonly answersId?: string | number;
  /**
   * Code that nobody has looked at, such as a model's: it has no network, no more of the machine than this, and what
   * it leaves in its working directory is handed back. Runners without a box for it refuse: `code_box_unavailable`.
   */
  readonly confined?: Confinement;
}

/** A file behind a link that works without a key. The link is a secret while it lasts. */
export interface LinkedFile {
  readonly path: string;
  /** A zip file of ours: what is in it is laid into the directory instead of it. */
  readonly isFolder?: boolean;
  readonly bytes: number;
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  /** Of the link's host, for runners whose machine has nobody to ask for a name. */
  readonly addresses?: readonly string[];
}

export interface Confinement {
  /** Of all its processes together; where only that can be had, of each of them. */
  readonly memoryBytes: number;
  /** Of all that it writes anywhere. */
  readonly diskBytes: number;
  /** With threads. */
  readonly maxProcesses: number;
  /** Files that it may hand back, and their bytes together; the rest is passed over. */
  readonly maxFiles: number;
  readonly maxFileBytes: number;
}

/** What was in the working directory when the last process had ended. */
export interface LeftFiles {
  /** New ones, and those that are not as they were laid down. */
  readonly files: readonly { readonly path: string; readonly body: Uint8Array }[];
  readonly passedOver: readonly { readonly path: string; readonly reason: string }[];
}

export interface PluginExit {
  readonly stdout: string;
  readonly stderr: string;
  readonly exitCode: number | null;
  /** `output`: more than `maxOutputBytes`; `spawn`: the program could not be started (`stderr` says why). */
  readonly ended: "exit" | "timeout" | "output" | "aborted" | "spawn";
  readonly durationMs: number;
  /** A confined run that was `aborted` because it took more than it may. */
  readonly exceeded?: "memory" | "processes";
  /** Of confined ones, where they got so far. */
  readonly left?: LeftFiles;
}

export interface PluginRunner {
  run(run: PluginRun): Promise<PluginExit>;
  /** A run is to be expected: what takes time to get ready may be made so now. */
  warm?(): void;
  /** So many bytes of files go with a run; what is more has to be `linked`. Absent: any number, and nothing linked. */
  readonly carriesBytes?: number;
}
