/** What upstream was seen to make of messages; where this differs, docs/vcp-compatibility.md says why. */
import { readFile } from "node:fs/promises";
import { beforeAll, describe, expect, test } from "vitest";
import type { JsonObject } from "../../json.ts";
import { createFakeCore } from "../../../../../test/support/fake-core.ts";
import { contextWith, sources, variables } from "../../../../../test/support/vcp-variables.ts";
import { verifies } from "../../../../../test/support/verifies.ts";
import { applyDetectors } from "./detectors.ts";
import { expandPlaceholders } from "./expand-placeholders.ts";

interface GoldenCase {
  readonly id: string;
  readonly asyncFiles?: Readonly<Record<string, unknown>>;
  readonly input: readonly JsonObject[];
  readonly output: readonly JsonObject[];
}

const file = new URL("../../../../../test/fixtures/vcp/placeholder-cases.json", import.meta.url);
const { cases } = JSON.parse(await readFile(file, "utf8")) as { readonly cases: readonly GoldenCase[] };

const configured = contextWith(
  variables(
    ["var", "VarPlain", "PLAIN"],
    ["tar", "TarEarly", "[tar-early {{VarPlain}} {{TarLater}} {{VarEarlierThanTar}}]"],
    ["var", "VarEarlierThanTar", "V0"],
    ["tar", "TarLater", "[tar-later {{TarEarly}}]"],
    ["var", "VarEmpty", ""],
    ["var", "VarFile1", "f1.txt"],
    ["var", "VarFile2", "plainf2"],
    ["var", "VarMissing", "nope.txt"],
    ["var", "Varlower", "vl"],
    ["text", "f1.txt", "FILE[{{VarPlain}}|{{TarLater}}|{{VarFile2}}]"],
    ["sar", "SarPrompt1", "SAR1 {{VarPlain}} {{Date}}", { models: ["m1", "M2"] }],
    ["sar", "SarPrompt2", "SAR2", { models: ["other"] }],
    ["sar", "SarPrompt3", "f1.txt", { models: ["m1"] }],
    ["detector", "Detector1", "secretword", { output: "DET" }],
    ["super_detector", "SuperDetector1", "superword", { output: "SUP" }],
    ["agent", "TestA", "AGENT-A says {{VarPlain}} {{TestB}} {{TestA}}"],
    ["agent", "TestB", "AGENT-B {{Date}}"],
  ),
);
const core = createFakeCore({
  core: {
    clock: { now: () => Date.parse("2026-11-28T05:21:34+08:00"), sleep: () => Promise.resolve() },
    publicUrl: "http://127.0.0.1:16005",
  },
});

/** As the texts of results are made from what a task has reported. */
const resultTexts: Readonly<Record<string, string>> = {
  "P-2": "MSG",
  "P-3": '任务 P (ID: 3) 已成功完成。详情: {"u":1}',
  "P-4": '任务 P (ID: 4) 已成功完成。详情: "r"',
  "P-5": "任务 P (ID: 5) 处理失败。原因: why",
  "P-6": '任务 P (ID: 6) 处理失败。原因: "err"',
  "P-7": "[任务 P (ID: 7) 已完成]",
  "P-8": "[获取任务 P (ID: 8) 结果时出错]",
};

const around = sources({
  values: {
    "{{EchoStaticVal}}": "static-out {{VarPlain}} $& {{EchoStaticBare}}",
    EchoStaticBare: "static-out {{VarPlain}} $& {{EchoStaticBare}}",
    "{{EchoStaticErrVal}}": "[EchoStaticErrDisp a-zheng-zai-jia-zai-zhong... ]",
  },
  results: resultTexts,
  tools: [
    {
      name: "EchoAsync",
      displayName: "EchoA",
      summary: "s",
      categories: [],
      text: "- EchoA (EchoAsync) - 命令: submit:\n    s",
    },
  ],
});

/** Texts of these cases that are otherwise here: upstream's, and ours. */
const differences: Readonly<Record<string, readonly (readonly [upstream: string, here: string])[]>> = {
  // Tar before all (specification 11): a Var defined before a Tar is replaced in it.
  "var-tar-order": [
    ["[tar-early {{VarPlain}} [tar-later {{TarEarly}}] V0]", "[tar-early PLAIN [tar-later {{TarEarly}}] V0]"],
  ],
  // What was expanded is not looked at again.
  sar: [["[tar-later [tar-early {{VarPlain}} [tar-later {{TarEarly}}] V0]]", "[tar-later {{TarEarly}}]"]],
  // Values of plugins are no templates, and `$&` is no command.
  "static-and-misc": [
    [
      "static-out {{VarPlain}} {{EchoStaticVal}} static-out {{VarPlain}} {{EchoStaticBare}} {{EchoStaticBare}}|static-out {{VarPlain}} {{EchoStaticBare}} {{EchoStaticBare}}|",
      "static-out {{VarPlain}} $& {{EchoStaticBare}}|static-out {{VarPlain}} $& {{EchoStaticBare}}|",
    ],
  ],
  // Plugins have names in other scripts here, and tasks ids with dots (a time in seconds): what they promise is kept.
  "async-id-charset": [
    ["{{VCP_ASYNC_RESULT::P::a.b}}", "[任务 P (ID: a.b) 结果待更新...]"],
    ["{{VCP_ASYNC_RESULT::中文::1}}", "[任务 中文 (ID: 1) 结果待更新...]"],
  ],
};

function asHere({ id, output }: GoldenCase): unknown {
  const text = JSON.stringify(output);
  return JSON.parse(
    (differences[id] ?? []).reduce((changed, [upstream, here]) => {
      const [from, to] = [JSON.stringify(upstream).slice(1, -1), JSON.stringify(here).slice(1, -1)];
      if (!changed.includes(from)) throw new Error(`case ${id} does not hold '${upstream}'`);
      return changed.replaceAll(from, () => to);
    }, text),
  );
}

describe(`placeholders as upstream was seen to replace them ${verifies("VCP-19", "VCP-11")}`, () => {
  let count = 0;
  beforeAll(() => {
    count = cases.length;
  });

  test.each(cases.map((each) => [each.id, each] as const))("%s", async (_id, each) => {
    const expanded = await expandPlaceholders(core, configured, each.input, { model: "m1", sources: around });
    expect(await applyDetectors(core, configured, expanded)).toEqual(asHere(each));
  });

  test("are all sixteen", () => {
    expect(count).toBe(16);
  });
});
