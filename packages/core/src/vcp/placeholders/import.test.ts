import { describe, expect, test } from "vitest";
import { verifies } from "../../../../../test/support/verifies.ts";
import { readVariableFiles } from "./import.ts";

function read(files: Readonly<Record<string, string | Uint8Array>>): ReturnType<typeof readVariableFiles> {
  return readVariableFiles(
    Object.entries(files).map(([path, body]) => ({ path, body: typeof body === "string" ? Buffer.from(body) : body })),
  );
}

function named({ variables }: ReturnType<typeof readVariableFiles>): readonly unknown[] {
  return variables.map(({ kind, name, content, options, position }) => [kind, name, content, options, position]);
}

describe(`files of a VCPToolBox ${verifies("VCP-19")}`, () => {
  test("become variables, wherever the folder lies", () => {
    const result = read({
      "VCP/TVStxt/f1.txt": "\uFEFFone",
      "VCP/TVStxt/dir/box.md": "box",
      "VCP/Agent/Nova.txt": "nova",
      "VCP/Agent/other.txt": "not in the map",
      "VCP/agent_map.json": '{"Nova": "Nova.txt", "小绝": "Agent/Nova.txt", "Gone": "gone.txt"}',
      "VCP/toolbox_map.json": '{"Box": {"file": "dir/box.md", "description": "d"}, "Plain": "f1.txt", "Bad": 1}',
      "VCP/sarprompt.json":
        '[{"promptKey": "SarPrompt1", "models": ["a", " b ", ""], "content": "s", "matchMode": "includes"}, {"models": []}, {"promptKey": "SarPrompt2", "models": [""], "content": "s"}]',
      "VCP/lists/猫表情包.txt": "a|b\n",
      "VCP/config.env":
        'API_Key=secret\nVarCity=杭州 # here\nTarAll="x\\n{{VarCity}}"\nVCP_Key=secret\nAgentBob=Nova.txt\nSarModel9=m\nSarPrompt9=ignored\nDetector1=a\nDetector_Output1=\nDetector2=b\nSuperDetector3=c\nSuperDetector_Output3=d\n',
      "VCP/server.js": "code",
    });
    expect(named(result)).toEqual([
      ["emoji", "猫表情包", "a|b", {}, undefined],
      ["text", "f1.txt", "one", {}, undefined],
      ["text", "dir/box.md", "box", {}, undefined],
      ["agent", "Nova", "nova", {}, undefined],
      ["agent", "小绝", "nova", {}, undefined],
      ["toolbox", "Box", "dir/box.md", { description: "d" }, undefined],
      ["toolbox", "Plain", "f1.txt", {}, undefined],
      ["sar", "SarPrompt1", "s", { models: ["a", "b"], match_mode: "includes" }, undefined],
      ["var", "VarCity", "杭州", {}, 1],
      ["tar", "TarAll", "x\n{{VarCity}}", {}, 2],
      ["agent", "AgentBob", "nova", {}, undefined],
      ["detector", "Detector1", "a", { output: "" }, undefined],
      ["super_detector", "SuperDetector3", "c", { output: "d" }, undefined],
    ]);
    expect(result.skipped.map(({ path }) => path)).toEqual([
      "VCP/server.js",
      "VCP/agent_map.json: Gone",
      "VCP/toolbox_map.json: Bad",
      "VCP/sarprompt.json[1]",
      "VCP/sarprompt.json[2]",
      "Detector2",
    ]);
    expect(JSON.stringify(result)).not.toContain("secret");
  });

  test("may be texts alone, or settings alone", () => {
    expect(named(read({ "a.txt": "a", "dir/b.md": "b" }))).toEqual([
      ["text", "a.txt", "a", {}, undefined],
      ["text", "dir/b.md", "b", {}, undefined],
    ]);
    expect(named(read({ ".env": "SarModel1=x, y\nSarPrompt1=p\n" }))).toEqual([
      ["sar", "SarPrompt1", "p", { models: ["x", "y"] }, undefined],
    ]);
    expect(named(read({ "Agent/A B.txt": "x", "Agent/Nova.md": "n" }))).toEqual([
      ["agent", "Nova", "n", {}, undefined],
    ]);
  });

  test("that cannot be read are named with the reason", () => {
    const { variables, skipped } = read({
      "TVStxt/gbk.txt": Buffer.from([0xc4, 0xe3]),
      "agent_map.json": "{",
      "toolbox_map.json": "[]",
      "sarprompt.json": "{}",
      "TVStxt/huge.txt": "x".repeat(1_048_577),
      "README.md": "outside",
    });
    expect(variables).toEqual([]);
    expect(skipped.map(({ path, reason }) => `${path}: ${reason}`)).toEqual([
      "TVStxt/gbk.txt: is no text in UTF-8",
      "agent_map.json: is no JSON",
      expect.stringContaining("huge.txt"),
      "README.md: lies outside of 'TVStxt' and 'Agent'",
      "toolbox_map.json: must be an object of names and files",
      "sarprompt.json: must be a list",
    ]);
  });

  test("are known by the outermost folder of that name, which is looked for once", () => {
    const inner = "TVStxt/".repeat(200_000);
    const { skipped } = read({ [`TVStxt/${inner}x`]: "none", [`Agent/a\n${"/Agent/".repeat(200_000)}.md`]: "none" });
    expect(skipped.map(({ reason }) => reason)).toEqual(Array(2).fill("is nothing that variables are made of"));
    expect(read({ "a/TVStxt/b/TVStxt/c.txt": "c" }).variables).toMatchObject([
      { kind: "text", name: "b/TVStxt/c.txt" },
    ]);
  });
});
