/**
 * Characters: who the model plays (VCP-9). A character's description goes to the model as one text; its own
 * world book comes up beside those of the preset.
 */
import * as z from "zod";
import { worldBookSchema } from "./world-book.ts";

const text = z.string().max(100_000).default("");

export const characterSchema = z.strictObject({
  /** As the character is called; the name under which it is stored may be another. */
  name: z.string().trim().min(1).max(200),
  description: text,
  personality: text,
  scenario: text,
  system_prompt: text,
  post_history_instructions: text.meta({ description: "Put after the conversation." }),
  examples: text.meta({ description: "Conversations that show how the character speaks." }),
  first_message: text.meta({ description: "For clients; not sent to the model." }),
  alternate_greetings: z.array(z.string().max(100_000)).max(100).default([]),
  notes: text.meta({ description: "Of its author, for people." }),
  creator: z.string().max(500).default(""),
  version: z.string().max(200).default(""),
  tags: z.array(z.string().max(200)).max(200).default([]),
  role: z.enum(["system", "hidden"]).default("system").meta({ description: "`hidden`: nobody but the model gets it." }),
  world_book: worldBookSchema.optional(),
});
export type Character = z.infer<typeof characterSchema>;

/** What a character says of itself to the model; empty for one that says nothing. */
export function characterText(character: Character): string {
  const examples = character.examples.replaceAll(/<START>/gi, "").trim();
  return [character.system_prompt, character.description, character.personality, character.scenario, examples]
    .map((part) => part.trim())
    .filter((part) => part !== "")
    .join("\n\n");
}

export interface Names {
  readonly user: string;
  /** Undefined: no character is played. */
  readonly character: string | undefined;
}

/** `{{user}}` and `{{char}}`; everything else in braces is left to the variables. */
export function withNames(text: string, { user, character }: Names): string {
  return text.replaceAll(/\{\{(user|char)\}\}/gi, (whole, name: string) =>
    name.toLowerCase() === "user" ? user : (character ?? whole),
  );
}

/** The same for texts of a card, which also spell them `<USER>` and `<BOT>`. */
export function withNamesOfCard(text: string, names: Names): string {
  const plain = text.replaceAll(/\{\{original\}\}/gi, "");
  return withNames(
    plain.replaceAll(/<(USER|BOT)>/gi, (_mark, name: string) =>
      name.toLowerCase() === "user" ? "{{user}}" : "{{char}}",
    ),
    names,
  );
}
