/** Whatever stands in messages and variables: nothing throws, and what means nothing stays byte by byte. */
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { createFakeCore } from "../../../../../test/support/fake-core.ts";
import { contextWith, sources, variables, type VariableLine } from "../../../../../test/support/vcp-variables.ts";
import { verifies } from "../../../../../test/support/verifies.ts";
import { applyDetectors } from "./detectors.ts";
import { expandPlaceholders } from "./expand-placeholders.ts";
import { parseFold } from "./fold.ts";
import { parseTemplate } from "./template.ts";

const core = createFakeCore();

const names = [
  "VarA",
  "VarB",
  "TarA",
  "Nova",
  "agent:Nova",
  "SarPrompt1",
  "Box",
  "猫表情包",
  "VCPAllTools",
  "VCPDynamicTools",
];
const piece = fc.oneof(
  { weight: 3, arbitrary: fc.constantFrom(...names.map((name) => `{{${name}}}`)) },
  fc.constantFrom(
    "{{",
    "}}",
    "{",
    "}",
    "{{{",
    "}}}",
    "[[VCPStaticFold::Full]]",
    "[[VCPDynamicTools:tool=T]]",
    "a.txt",
    "$&",
    "\n",
  ),
  fc.constantFrom(
    "{{VCP_ASYNC_RESULT::P::1}}",
    "[===vcp_fold: 0.5===]\n",
    "{{Weather}}",
    "{{Date}}",
    "{{SarPromptAll}}",
    "{{EmojiList}}",
  ),
  fc.string({ unit: "binary", maxLength: 12 }),
);
const text = fc.array(piece, { maxLength: 20 }).map((parts) => parts.join(""));
const role = fc.constantFrom("system", "user", "assistant", "tool", "developer");

const lines = fc
  .tuple(text, text, text, text, text, text, text)
  .map(([varA, varB, tarA, nova, sar, box, file]): readonly VariableLine[] => [
    ["var", "VarA", varA],
    ["tar", "TarA", tarA],
    ["agent", "Nova", nova],
    ["sar", "SarPrompt1", sar, { models: ["m"] }],
    ["toolbox", "Box", box],
    ["text", "a.txt", file],
    ["emoji", "猫表情包", "a|b"],
    ["var", "VarB", varB],
    ["detector", "Detector1", "a", { output: "b" }],
  ]);

describe(`any messages and variables ${verifies("VCP-19")}`, () => {
  test("come to messages of the same roles, in the same order, without a throw", async () => {
    await fc.assert(
      fc.asyncProperty(
        lines,
        fc.array(fc.record({ role, content: text }), { maxLength: 4 }),
        text,
        async (own, messages, value) => {
          const context = contextWith(variables(...own), { placeholder_chars_max: 50_000_000 });
          const around = sources({
            values: { Weather: value },
            results: { "P-1": value },
            tools: [{ name: "T", displayName: "T", summary: value, categories: [], text: value }],
          });
          const expanded = await expandPlaceholders(core, context, messages, { model: "m", sources: around });
          const detected = await applyDetectors(core, context, expanded);
          expect(detected.map((message) => message["role"])).toEqual(messages.map((message) => message.role));
          for (const { content } of detected) expect(content).not.toMatch(/[0-9a-f]{24}:/);
        },
      ),
    );
  });

  test("stay as they are, but for white space around a system's, where no name means anything", async () => {
    const strange = fc.string({ unit: "binary", maxLength: 60 });
    const unknown = fc.array(
      fc.oneof(
        strange,
        strange.map((name) => `{{${name}}}`),
        fc.constantFrom("{{", "}}", "[[VCP"),
      ),
    );
    await fc.assert(
      fc.asyncProperty(
        unknown.map((parts) => parts.join("")),
        role,
        async (content, who) => {
          const [message] = await expandPlaceholders(core, contextWith([]), [{ role: who, content }], {
            model: "m",
            sources: sources({}),
          });
          const isSystem = who === "system" || who === "developer";
          expect(message?.["content"]).toBe(isSystem ? content.trim() : content);
        },
      ),
    );
  });

  test("have the text of a value exactly once, wherever its placeholder stands", async () => {
    await fc.assert(
      fc.asyncProperty(fc.string({ unit: "binary" }), fc.string(), fc.string(), async (value, before, after) => {
        fc.pre(!/[{}[]/.test(before + after));
        const [message] = await expandPlaceholders(
          core,
          contextWith([]),
          [{ role: "user", content: `<${before}{{VCP_ASYNC_RESULT::P::1}}${after}>` }],
          { model: "m", sources: sources({ results: { "P-1": value } }) },
        );
        expect(message?.["content"]).toBe(`<${before}${value}${after}>`);
      }),
    );
  });
});

test("marks lie in the text, one after the other, and are what they say", () => {
  fc.assert(
    fc.property(text, (content) => {
      let end = 0;
      for (const mark of parseTemplate(content).marks) {
        expect(mark.start).toBeGreaterThanOrEqual(end);
        end = mark.end;
        const whole = content.slice(mark.start, mark.end);
        expect(whole).toContain(mark.kind === "placeholder" ? `{{${mark.name}}}` : mark.value);
      }
      expect(end).toBeLessThanOrEqual(content.length);
    }),
  );
});

test("a folded text is read, or is none", () => {
  fc.assert(
    fc.property(text, (content) => {
      for (const block of parseFold(content) ?? []) expect(content).toContain(block.content);
    }),
  );
});
