/**
 * Presets of the Tavern (VCP specification 4.5; VCP-9): rules that put texts into a conversation, and which
 * character and world books come with them. Presets of VCPTavern are read as they are.
 */
import * as z from "zod";

/** Names are chosen by people and stand in `{{VCPTavern::name}}`, so they hold neither braces nor colons. */
export const tavernNameSchema = z
  .string()
  .trim()
  .min(1)
  .max(100)
  .regex(/^[^{}:/\\\p{Cc}]+$/u, "may hold neither braces, colons, slashes nor control characters");

/** `hidden`: a system message that nobody but the model gets. */
export const injectedRoleSchema = z.enum(["system", "user", "assistant", "hidden"]);
export type InjectedRole = z.infer<typeof injectedRoleSchema>;

const longestText = 200_000;

const contentSchema = z.union([
  z.string().max(longestText),
  z.looseObject({ role: injectedRoleSchema.default("system"), content: z.string().max(longestText) }),
]);

const depth = z.int().min(0).max(10_000);

export const ruleSchema = z.looseObject({
  name: z.string().max(200).default(""),
  enabled: z.boolean().default(true),
  type: z.enum(["embed", "relative", "depth"]),
  target: z.enum(["system", "first_user", "last_user", "all_user"]).default("system"),
  position: z.enum(["before", "after"]).default("after"),
  /** Messages that follow what is inserted. Forms write it as digits. */
  depth: z
    .union([
      depth,
      z
        .string()
        .regex(/^\d{1,5}$/, "must be digits")
        .transform(Number)
        .pipe(depth),
    ])
    .default(0),
  content: contentSchema,
});
export type TavernRule = z.infer<typeof ruleSchema>;

export const presetSchema = z.looseObject({
  description: z.string().max(2_000).optional(),
  rules: z.array(ruleSchema).max(500).default([]),
  world_books: z.array(tavernNameSchema).max(20).default([]).meta({ description: "Names of world books." }),
  character: tavernNameSchema.optional().meta({ description: "Name of the character that is played." }),
  user_name: z
    .string()
    .trim()
    .min(1)
    .max(100)
    .optional()
    .meta({ description: "What `{{user}}` says; default `User`." }),
});
export type TavernPreset = z.infer<typeof presetSchema>;
