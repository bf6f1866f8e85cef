/**
 * What the program that runs modules (packages/platform/src/module-host) is asked, and how it answers. Questions are
 * JSON on stdin. Answers are lines on stdout that begin with a mark and a word which only the asker knows, so that
 * nothing a module writes there is ever taken for one. No imports: the program is bundled with it.
 */
import type { JsonObject, JsonValue } from "../../json.ts";

/** Begins every answer, before the asker's word. */
export const answerMark = "\u001E";

/** A module of a plugin, ready to be loaded. */
export interface ModuleSpec {
  readonly name: string;
  /** Path of the module below the plugin's folder. */
  readonly script: string;
  /** Values of the plugin's configuration, typed. */
  readonly config: JsonObject;
  /** The same as text, for its environment. */
  readonly environment: Readonly<Record<string, string>>;
  readonly hasApiRoutes: boolean;
}

/** A module that is loaded for one question, with all of its files. */
export interface CarriedModule extends ModuleSpec {
  readonly files: readonly { readonly path: string; readonly base64: string }[];
  readonly timeoutMs: number;
  readonly memoryMb: number;
  /** The manifest says that nothing it leaves open matters. */
  readonly mayStayOpen: boolean;
}

export interface ToolContext {
  readonly requestIp: string | null;
  readonly sourceNode: string | null;
}

/** Everything of one run; its process ends with the answer. */
export interface OnceQuestion {
  readonly word: string;
  readonly plugins: readonly CarriedModule[];
  /** Bytes of any result. */
  readonly maxBytes: number;
  readonly ask:
    | { readonly kind: "messages"; readonly messages: readonly JsonValue[]; readonly extensions?: JsonValue }
    | { readonly kind: "tool"; readonly arguments: JsonObject; readonly context: ToolContext };
}

export interface HttpAsked {
  readonly method: string;
  /** Below the plugin's own address, with its slash. */
  readonly path: string;
  /** As it came, without its question mark. */
  readonly query: string;
  readonly headers: readonly (readonly [string, string])[];
  readonly base64: string;
  readonly ip: string | null;
}

export interface HttpAnswered {
  readonly status: number;
  readonly headers: readonly (readonly [string, string])[];
  readonly base64: string;
}

/** The first line to a module that stays. */
export interface OpenQuestion {
  readonly id: string;
  readonly kind: "open";
  readonly word: string;
  readonly plugin: ModuleSpec;
  /** The plugin's folder. */
  readonly directory: string;
  readonly maxBytes: number;
}

export type HeldQuestion =
  | OpenQuestion
  | {
      readonly id: string;
      readonly kind: "messages";
      readonly messages: readonly JsonValue[];
      readonly extensions?: JsonValue;
      readonly timeoutMs: number;
    }
  | {
      readonly id: string;
      readonly kind: "tool";
      readonly arguments: JsonObject;
      readonly context: ToolContext;
      readonly timeoutMs: number;
    }
  | { readonly id: string; readonly kind: "http"; readonly request: HttpAsked; readonly timeoutMs: number }
  | { readonly id: string; readonly kind: "close" }
  | { readonly kind: "cancel"; readonly id: string };

/**
 * `absent`: it has no such function. `load`: it cannot be loaded. `initialize`: it threw there. `open`: it left something open and so needs to stay.
 * `stream`: its answer has begun and does not end. `timeout`, `memory`, `ended`, `size`: it took too long, too much, ended by itself, gave too much. `result`: what
 * it gave is not what is asked for. `threw`: what it says itself.
 */
export type ModuleFault =
  | "absent"
  | "load"
  | "initialize"
  | "open"
  | "timeout"
  | "stream"
  | "memory"
  | "ended"
  | "size"
  | "result"
  | "threw";

export interface Fault {
  readonly fault: ModuleFault;
  readonly message: string;
}

export interface Stage {
  readonly plugin: string;
  readonly durationMs: number;
  /** Absent: it did its part. */
  readonly failed?: Fault;
  /** What it left open, by kind. */
  readonly open?: readonly string[];
}

/** What a module tells those who watch (VCPLog, VCPInfo). */
export interface Told {
  readonly plugin: string;
  readonly to: "VCPLog" | "VCPInfo";
  readonly data: JsonValue;
}

export type OnceAnswer =
  /** It is this plugin's turn: should the process end now, it was at work. */
  | { readonly kind: "turn"; readonly plugin: string }
  | { readonly kind: "told"; readonly told: Told }
  | { readonly kind: "stage"; readonly stage: Stage }
  /** `null` where a tool gave nothing back. */
  | { readonly kind: "done"; readonly messages?: readonly JsonValue[]; readonly result?: JsonValue };

export type HeldAnswer =
  | { readonly id: string; readonly result: JsonValue }
  | { readonly id: string; readonly failed: Fault }
  | { readonly kind: "told"; readonly told: Told };

export function writeAnswer(word: string, answer: OnceAnswer | HeldAnswer): string {
  return `\n${answerMark}${word} ${JSON.stringify(answer)}\n`;
}
