/**
 * Variables of a tenant: what placeholders in prompts stand for (VCP specification 11; VCP-19). A kind is one line
 * of the table below; what a kind's content may hold is said in names.ts.
 */
import * as z from "zod";

/** Letters and digits of any script, and the signs that upstream's names have. */
const nameSigns = "[\\p{L}\\p{N}_:@#%&^+.-]";

interface KindSpec {
  readonly pattern: RegExp;
  /** Of names, for messages. */
  readonly rule: string;
  readonly description: string;
}

export const variableKinds = {
  agent: {
    pattern: new RegExp(`^${nameSigns}{1,100}$`, "u"),
    rule: "must have 1 to 100 letters, digits or signs of '_:@#%&^+.-'",
    description: "The prompt of a role: `{{name}}`, `{{agent:name}}`, `{{Agent…}}`. One of them is used in a request.",
  },
  tar: {
    pattern: new RegExp(`^Tar${nameSigns}{1,100}$`, "u"),
    rule: "must begin with 'Tar'",
    description: "A template put together of other variables; comes before all others.",
  },
  var: {
    pattern: new RegExp(`^(?:Var|VCP_(?!ASYNC_RESULT::))${nameSigns}{1,100}$`, "u"),
    rule: "must begin with 'Var' or 'VCP_', but for 'VCP_ASYNC_RESULT::'",
    description: "A value for all prompts.",
  },
  sar: {
    pattern: new RegExp(`^SarPrompt${nameSigns}{1,100}$`, "u"),
    rule: "must begin with 'SarPrompt'",
    description: "A text for some models alone; `{{SarPromptAll}}` is all that fit the model.",
  },
  text: {
    pattern: /^[^\p{Cc}{}\\]{1,200}\.(?:txt|md)$/iu,
    rule: "must be the name of a .txt or .md file, without braces and backslashes",
    description: "A text file; variables whose value is its name have its text.",
  },
  toolbox: {
    pattern: new RegExp(`^${nameSigns}{1,100}$`, "u"),
    rule: "must have 1 to 100 letters, digits or signs of '_:@#%&^+.-'",
    description: "Descriptions of tools: `{{name}}`, `{{toolbox:name}}`, once in a request; may be folded.",
  },
  emoji: {
    pattern: new RegExp("^[^\\p{Cc}{}]{1,100}表情包$", "u"),
    rule: "must end with '表情包'",
    description: "Names of pictures, joined by '|': `{{…表情包}}`; `{{EmojiList}}` is all lists.",
  },
  detector: {
    pattern: /^Detector\d{1,6}$/,
    rule: "must be 'Detector' and a number",
    description: "Replaces `content` by `output` in system messages, after everything else.",
  },
  super_detector: {
    pattern: /^SuperDetector\d{1,6}$/,
    rule: "must be 'SuperDetector' and a number",
    description: "Replaces `content` by `output` in messages of every role, after everything else.",
  },
} as const satisfies Record<string, KindSpec>;

export type VariableKind = keyof typeof variableKinds;

const kinds = Object.keys(variableKinds) as [VariableKind, ...VariableKind[]];
export const variableKindSchema = z.enum(kinds);

/** Bytes of one content. */
export const largestContent = 1_048_576;
/** Of one tenant: each is part of its snapshot. */
export const mostVariables = 5_000;
/** Contents up to so many bytes are part of the snapshot; larger ones are read when they are used. */
export const inlineBytes = 1_024;

export const variableOptionsSchema = z.strictObject({
  /** `sar`: models that it is for. */
  models: z.array(z.string().trim().min(1).max(200)).max(500).exactOptional(),
  /** `sar`: whole names, or parts of them. */
  match_mode: z.enum(["exact", "includes"]).exactOptional(),
  /** Detectors: what is put in place of the content. */
  output: z.string().max(65_536).exactOptional(),
  /** For people; of a toolbox, for models, too. */
  description: z.string().max(4_096).exactOptional(),
});
export type VariableOptions = z.infer<typeof variableOptionsSchema>;

/** A variable without its content, where that is large: part of the tenant's snapshot. */
export interface VariableEntry {
  /** `var_…` */
  readonly id: string;
  readonly kind: VariableKind;
  /** Unique among those of its kind. */
  readonly name: string;
  readonly options: VariableOptions;
  /** Order of definition: a value may hold those that are defined after it. */
  readonly position: number;
  /** SHA-256 of the content, hexadecimal. */
  readonly hash: string;
  readonly bytes: number;
  /** Null: larger than `inlineBytes`. */
  readonly content: string | null;
  readonly version: number;
  readonly createdAt: number;
  readonly updatedAt: number;
}

export interface NewVariable extends Pick<VariableEntry, "id" | "kind" | "name" | "options" | "hash"> {
  readonly content: string;
  /** Left out: after all there are. */
  readonly position?: number;
}

/** Only what is given changes. */
export interface VariableChange {
  readonly options?: VariableOptions;
  readonly position?: number;
  readonly content?: { readonly text: string; readonly hash: string };
}
