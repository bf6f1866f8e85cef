import { describe, expect, test } from "vitest";
import type { JsonObject } from "../../json.ts";
import { createFakeCore } from "../../../../../test/support/fake-core.ts";
import { contextWith, sources, variables, type VariableLine } from "../../../../../test/support/vcp-variables.ts";
import { verifies } from "../../../../../test/support/verifies.ts";
import { applyDetectors } from "./detectors.ts";
import { expandPlaceholders } from "./expand-placeholders.ts";
import type { PlaceholderSources } from "./sources.ts";
import type { VariableEntry, VariableKind } from "./variable.ts";

const now = Date.parse("2026-11-28T05:21:34+08:00");
const core = createFakeCore({
  core: { clock: { now: () => now, sleep: () => Promise.resolve() }, publicUrl: "https://gateway.example.com" },
});

interface Expansion {
  readonly model?: string;
  readonly around?: PlaceholderSources;
  readonly settings?: Readonly<Record<string, unknown>>;
}

async function expand(
  lines: readonly VariableLine[],
  messages: readonly JsonObject[],
  { model = "m1", around = sources({}), settings = {} }: Expansion = {},
): Promise<readonly JsonObject[]> {
  return expandPlaceholders(core, contextWith(variables(...lines), settings), messages, { model, sources: around });
}

/** What one system message comes to. */
async function system(lines: readonly VariableLine[], content: string, options: Expansion = {}): Promise<unknown> {
  const [message] = await expand(lines, [{ role: "system", content }], options);
  return message?.["content"];
}

describe(`what variables hold ${verifies("VCP-19")}`, () => {
  test("comes in without being read as a pattern of replacing", async () => {
    const text = "cost $& and $1 and $$ and $` and $'";
    expect(await system([["var", "VarPrice", text]], "A {{VarPrice}} B")).toBe(`A ${text} B`);
    expect(await system([["agent", "Nova", text]], "A {{Nova}} B")).toBe(`A ${text} B`);
    expect(await system([["sar", "SarPrompt1", text, { models: ["m1"] }]], "A {{SarPrompt1}} B")).toBe(`A ${text} B`);
    const around = sources({ values: { Weather: text }, results: { "Bill-t1": "total: $100 $'x" } });
    expect(await system([], "{{Weather}}|{{VCP_ASYNC_RESULT::Bill::t1}}", { around })).toBe(`${text}|total: $100 $'x`);
  });

  test("may be put together: Tar before all, of everything", async () => {
    const lines: readonly VariableLine[] = [
      ["var", "VarFirst", "F"],
      ["agent", "Nova", "nova {{VarFirst}}"],
      ["emoji", "猫表情包", "a|b"],
      ["sar", "SarPrompt1", "sar", { models: ["M1"] }],
      ["tar", "TarAll", "{{VarFirst}} {{Nova}} {{猫表情包}} {{SarPrompt1}} {{VarLast}} {{Date}} {{TarNext}}"],
      ["tar", "TarNext", "{{TarAll}}!"],
      ["var", "VarLast", "L"],
    ];
    expect(await system(lines, "{{TarAll}}")).toBe("F nova F a|b sar L 2026/11/28 {{TarAll}}!");
  });

  test("holds of other values those that are defined after it", async () => {
    const lines: readonly VariableLine[] = [
      ["var", "VarA", "{{VarB}} {{VarC}}"],
      ["var", "VarB", "b {{VarA}}"],
      ["var", "VarC", "c {{VarB}}"],
    ];
    expect(await system(lines, "{{VarA}}|{{VarC}}")).toBe("b {{VarA}} c {{VarB}}|c {{VarB}}");
  });

  test("ends where it comes back to itself", async () => {
    const lines: readonly VariableLine[] = [
      ["var", "VarFile", "a.txt"],
      ["text", "a.txt", "file {{VarFile}} {{VarOther}}"],
      ["var", "VarOther", "B.TXT"],
      ["text", "B.TXT", "other {{VarFile}}"],
    ];
    expect(await system(lines, "{{VarFile}}")).toBe(
      "file [Error: Circular reference detected for 'a.txt'] other [Error: Circular reference detected for 'a.txt']",
    );
    const agents: readonly VariableLine[] = [["agent", "Loop", "l {{Loop}}"]];
    expect(await system(agents, "{{Loop}}")).toBe("l [Error: Circular agent reference detected for 'Loop']");
  });

  test("is not looked at again once it stands in a message", async () => {
    const lines: readonly VariableLine[] = [
      ["var", "VarOpen", "{{Var"],
      ["var", "VarSecret", "secret"],
    ];
    const around = sources({
      values: { Weather: "{{VarSecret}} {{Date}}" },
      results: { "P-1": "{{VarSecret}}" },
      tools: [{ name: "T", displayName: "T", summary: "", categories: [], text: "call {{VarSecret}}" }],
    });
    expect(await system(lines, "{{VarOpen}}Secret}}|{{Weather}}|{{VCPT}}|{{VCP_ASYNC_RESULT::P::1}}", { around })).toBe(
      "{{VarSecret}}|{{VarSecret}} {{Date}}|call {{VarSecret}}|{{VarSecret}}",
    );
  });

  test("is the text of a file where it names one", async () => {
    const lines: readonly VariableLine[] = [
      ["text", "dir/a.txt", " inner "],
      ["var", "VarA", "TVStxt/dir/a.txt"],
      ["var", "VarB", ".\\dir\\a.txt"],
      ["var", "VarC", "two lines\nof a.txt"],
    ];
    expect(await system(lines, "{{VarA}}|{{VarB}}|{{VarC}}")).toBe("inner|inner|two lines\nof a.txt");
  });
});

describe(`agents ${verifies("VCP-19")}`, () => {
  const lines: readonly VariableLine[] = [
    ["agent", "Nova", "NOVA"],
    ["agent", "可可", "COCO {{Nova}}"],
    ["var", "VarAgent", "a.txt"],
    ["text", "a.txt", "[{{可可}}]"],
    ["tar", "TarAgent", "<{{agent:Nova}}>"],
  ];

  test("stand under their name, with 'agent:' and with 'Agent'", async () => {
    for (const form of ["{{Nova}}", "{{agent:Nova}}", "{{AgentNova}}"]) expect(await system(lines, form)).toBe("NOVA");
  });

  test("are one in a request: the first, with all its copies in that text", async () => {
    const messages = [
      { role: "system", content: "{{Nova}} {{agent:Nova}} {{可可}}" },
      { role: "system", content: "a{{Nova}}b" },
      { role: "user", content: "[系统提示:]{{可可}}." },
    ];
    const texts = (await expand(lines, messages)).map(({ content }) => content);
    expect(texts).toEqual(["NOVA NOVA", "ab", "[系统提示:]."]);
  });

  test("come first in their text before what values bring in", async () => {
    expect(await system(lines, "{{VarAgent}} {{Nova}}")).toBe("[] NOVA");
    expect(await system(lines, "{{TarAgent}} {{可可}}")).toBe("<NOVA>");
  });

  test("that have gone since the request began say so", async () => {
    const gone = variables(["agent", "Nova", "x".repeat(2_000)]).map((entry) => ({
      ...entry,
      content: null,
      hash: "gone",
    }));
    const repos = { ...core.repos, variables: { ...core.repos.variables, contents: () => Promise.resolve([]) } };
    const [message] = await expandPlaceholders(
      { ...core, repos },
      contextWith(gone),
      [{ role: "system", content: "{{Nova}}" }],
      { model: "", sources: sources({}) },
    );
    expect(message?.["content"]).toBe("[AgentManager: Error loading prompt for 'Nova'. File not found or unreadable.]");
  });
});

describe(`texts for some models ${verifies("VCP-19")}`, () => {
  const lines: readonly VariableLine[] = [
    ["sar", "SarPrompt1", "one {{VarX}}", { models: ["Gpt-5"] }],
    ["sar", "SarPrompt2", "two", { models: ["gpt", "claude"], match_mode: "includes" }],
    ["sar", "SarPromptCode", "code", { models: ["x"] }],
    ["var", "VarX", "x"],
  ];

  test.each([
    ["gpt-5", "one x|two||one x\ntwo"],
    ["my-claude-4", "|two||two"],
    ["other", "|||"],
  ])("%s", async (model, expected) => {
    const text = "{{SarPrompt1}}|{{SarPrompt2}}|{{SarPromptCode}}|{{SarPromptAll}}";
    expect(await system(lines, text, { model })).toBe(expected);
  });

  test("stand in notices and prompts of users, which nothing else of it does", async () => {
    const messages = ["[系统通知]", "[系统通知:]", "[系统邀请指令:]", "say "].map((begin) => ({
      role: "user",
      content: `${begin}{{SarPrompt1}}`,
    }));
    const texts = (await expand(lines, messages, { model: "gpt-5" })).map(({ content }) => content);
    expect(texts).toEqual([
      "[系统通知]one {{VarX}}",
      "[系统通知:]one {{VarX}}",
      "[系统邀请指令:]one {{VarX}}",
      "say {{SarPrompt1}}",
    ]);
  });
});

describe(`toolboxes and folded texts ${verifies("VCP-19")}`, () => {
  const folded = "always {{VarX}}\n[===vcp_fold: 0.4 ::desc: more words===]\nmore\n[===vcp_fold: 0.7===]\nmost";
  const lines: readonly VariableLine[] = [
    ["text", "box.md", folded],
    ["toolbox", "Box", "box.md"],
    ["var", "VarX", "x"],
  ];

  test("are shown once in a request, with what is always shown", async () => {
    const messages = [1, 2].map(() => ({ role: "system", content: "{{Box}}+{{toolbox:Box}}" }));
    expect((await expand(lines, messages)).map(({ content }) => content)).toEqual(["always x+always x", "+"]);
  });

  test.each([
    ["with a file", "box.md", "a {{Box}} b"],
    ["with a text", "a {{Box}} b", ""],
  ])("%s hold nothing of themselves", async (_what, box, file) => {
    const own: readonly VariableLine[] = [
      ["text", "box.md", file],
      ["toolbox", "Box", box],
    ];
    expect(await system(own, "{{Box}}")).toBe("a  b");
  });

  test.each([
    ["", "always {{VarX}}"],
    ["[[VCPStaticFold::Auto]]", "always {{VarX}}"],
    ["[[VCPStaticFold::Lite]]", "always {{VarX}}"],
    ["[[VCPStaticFold::Full]]", "always {{VarX}}\n\n---\n\nmore\n\n---\n\nmost"],
  ])("of static plugins are shown as %s says, wherever it stands", async (mode, expected) => {
    const around = sources({ values: { Folded: folded } });
    expect(await system([], `{{Folded}}${mode}`, { around })).toBe(expected);
    expect(await system([["agent", "A", mode]], "{{Folded}}{{A}}", { around })).toBe(expected);
  });

  test("may be JSON, and a mode that there is not stays", async () => {
    const value = JSON.stringify({
      vcp_dynamic_fold: true,
      fold_blocks: [
        { threshold: 0.5, content: "high" },
        { threshold: 0.1, content: "low" },
      ],
    });
    const around = sources({ values: { Folded: value } });
    expect(await system([], "{{Folded}} [[VCPStaticFold::Some]]", { around })).toBe("low [[VCPStaticFold::Some]]");
    const [message] = await expand([], [{ role: "user", content: "[[VCPStaticFold::Full]] {{Date}}" }], { around });
    expect(message?.["content"]).toBe("[[VCPStaticFold::Full]] {{Date}}");
  });
});

describe(`tools ${verifies("VCP-19")}`, () => {
  const tools = ["Alpha", "Beta", "Gamma"].map((name) => ({
    name,
    displayName: `${name} tool`,
    summary: `does ${name}`,
    categories: name === "Alpha" ? [] : ["greek"],
    text: `text of ${name}`,
  }));
  const around = sources({ tools, values: { VCP_Mood: "good", "{{VCP天气}}": "sunny" } });

  test("stand under their names, all together, and after 'VCP_'", async () => {
    const text = "{{VCPAlpha}}|{{VCP_Beta}}|{{VCP_Mood}}|{{VCP天气}}|{{VCP_VarX}}|{{VCPNone}}|{{VCPAllTools}}";
    expect(await system([["var", "VCP_VarX", "own"]], text, { around })).toBe(
      "text of Alpha|text of Beta|good|sunny|own|{{VCPNone}}|text of Alpha\n\n---\n\ntext of Beta\n\n---\n\ntext of Gamma",
    );
    expect(await system([], "{{VCPAllTools}}")).toBe("没有可用的VCP工具描述信息");
  });

  test("are listed, and described where the conversation names them", async () => {
    const list = "- Alpha tool (Alpha): does Alpha\n- Beta tool (Beta): does Beta\n- Gamma tool (Gamma): does Gamma";
    const shown = async (wish: string, said: string): Promise<unknown> => {
      const messages = [
        { role: "system", content: `{{VCPDynamicTools}}${wish}` },
        { role: "user", content: said },
      ];
      return (await expand([], messages, { around }))[0]?.["content"];
    };
    expect(await shown("", "hello")).toBe(list);
    expect(await shown("", "use Gamma and Alpha tool")).toBe(`${list}\n\n---\n\ntext of Gamma\n\n---\n\ntext of Alpha`);
    expect(await shown("[[VCPDynamicTools:tool=Beta]]", "hello")).toBe(`${list}\n\n---\n\ntext of Beta`);
    expect(await shown("[[VCPDynamicTools:category=greek:all]]", "")).toBe(
      `${list}\n\n---\n\ntext of Beta\n\n---\n\ntext of Gamma`,
    );
  });
});

test("what tools the user names is looked for once in a request", async () => {
  const tools = Array.from({ length: 200 }, (_, at) => ({
    name: `aaaaaaaab${at}`,
    displayName: `aaaaaaac${at}`,
    summary: "",
    categories: [],
    text: "t",
  }));
  const messages = [
    { role: "system", content: "{{VCPDynamicTools}}".repeat(100) },
    { role: "user", content: "a".repeat(1_000_000) },
  ];
  const [message] = await expand([], messages, { around: sources({ tools }) });
  expect(JSON.stringify(message).slice(0, 100)).toContain("- aaaaaaac0 (aaaaaaaab0)");
});

describe(`the rest ${verifies("VCP-19", "VCP-11")}`, () => {
  test("of what there is: pictures, nodes, the port, dates in the tenant's zone", async () => {
    const lines: readonly VariableLine[] = [
      ["emoji", "猫表情包", "a|b"],
      ["emoji", "狗表情包", "c"],
    ];
    expect(await system(lines, "{{EmojiList}}")).toBe("猫表情包: a|b\n狗表情包: c");
    expect(await system([], "{{EmojiList}} {{x表情包}} {{表情包}}")).toBe(
      "[表情包列表不可用] [x表情包列表不可用] {{表情包}}",
    );
    expect(await system([], "{{VCPDistributedServerList}} {{Port}}")).toBe("[当前没有已连接的分布式节点] 443");
    const all = "{{Date}} {{Time}} {{Today}} {{Festival}}";
    expect(await system([], all)).toBe("2026/11/28 05:21:34 星期六 丙午马年十月廿十");
    expect(await system([], all, { settings: { time_zone: "America/New_York" } })).toBe(
      "2026/11/27 16:21:34 星期五 丙午马年十月十九",
    );
  });

  test("is replaced between the braces of its own, however many there are", async () => {
    const around = sources({ results: { "Draw-t1": "R1", "Draw-t3": "R3" } });
    const content =
      "first {{VCP_ASYNC_RESULT::Draw::t1}} keep-1 {{VCP_ASYNC_RESULT::Draw::t2}} keep-2 {{not closed {{VCP_ASYNC_RESULT::Draw::t3}} end";
    const [message] = await expand([], [{ role: "user", content }], { around });
    expect(message?.["content"]).toBe("first R1 keep-1 [任务 Draw (ID: t2) 结果待更新...] keep-2 {{not closed R3 end");
    expect(await system([["var", "VarX", "x"]], "{{{VarX}}} {{{{VarX}} {{VarX}}}} {{Va{{VarX}}rX}}")).toBe(
      "{x} {{x x}} {{VaxrX}}",
    );
  });

  test("is for messages of developers as for those of the system", async () => {
    const [message] = await expand([["var", "VarX", "x"]], [{ role: "developer", content: " {{VarX}} {{Image_Key}}" }]);
    expect(message?.["content"]).toBe("x {{Image_Key}}");
  });

  test("is up to a thousand results of tasks in a request; those beyond stay", async () => {
    let asked = 0;
    const around = { ...sources({}), asyncText: () => Promise.resolve(`r${(asked += 1)}`) };
    const content = Array.from({ length: 1_002 }, (_, at) => `{{VCP_ASYNC_RESULT::P::${at}}}`).join(" ");
    const [message] = await expand([], [{ role: "user", content }], { around });
    expect(asked).toBe(1_000);
    expect(message?.["content"]).toMatch(/ r1000 \{\{VCP_ASYNC_RESULT::P::1000\}\} \{\{VCP_ASYNC_RESULT::P::1001\}\}$/);
  });

  test("stays the same object where there is nothing to replace", async () => {
    const messages: readonly JsonObject[] = [
      { role: "system", content: "plain" },
      {
        role: "user",
        content: [
          { type: "text", text: "{{VarNone}}" },
          { type: "image_url", image_url: { url: "x" } },
        ],
      },
      { role: "assistant", content: null, tool_calls: [] },
      { role: "tool", content: "{{Date}} {{VarX}}" },
    ];
    const expanded = await expand([["var", "VarX", "x"]], messages);
    expanded.forEach((message, at) => expect(message).toBe(messages[at]));
  });

  test("asks plugins and nodes for nothing where no message needs it", async () => {
    const refuse = (): never => {
      throw new Error("was not to be asked");
    };
    const around: PlaceholderSources = { staticValues: refuse, asyncText: refuse, toolTexts: refuse };
    const messages = [
      { role: "system", content: "{{VarX}} {{Date}}" },
      { role: "user", content: "{{Weather}} {{VCPAllTools}}" },
    ];
    const texts = (await expand([["var", "VarX", "x"]], messages, { around })).map(({ content }) => content);
    expect(texts).toEqual(["x 2026/11/28", "{{Weather}} {{VCPAllTools}}"]);
  });
});

test(`marks about media are heard of where prompts hold them, and of nothing that was brought in ${verifies("VCP-19")}`, async () => {
  const heard: string[] = [];
  const around = sources({ values: { Weather: "{{ShowBase64}}" }, results: { "P-1": "{{ShowBase64}}" } });
  const run = async (content: string): Promise<unknown> => {
    const context = contextWith(variables(["agent", "Nova", "n {{TransBase64+}}"]));
    const options = { model: "", sources: around, onMediaMark: (mark: string) => void heard.push(mark) };
    return (await expandPlaceholders(core, context, [{ role: "system", content }], options))[0]?.["content"];
  };
  expect(await run("{{Weather}} {{VCP_ASYNC_RESULT::P::1}}")).toBe("{{ShowBase64}} {{ShowBase64}}");
  expect(heard).toEqual([]);
  expect(await run("{{Nova}} {{ShowBase64}}!")).toBe("n !");
  expect(heard).toEqual(["TransBase64+", "ShowBase64"]);
});

describe("detectors", () => {
  test("replace in the order of their numbers, in system messages or in all", async () => {
    const lines = variables(
      ["detector", "Detector10", "b", { output: "$&" }],
      ["detector", "Detector2", "a", { output: "b" }],
      ["super_detector", "SuperDetector1", "cat", { output: "dog" }],
    );
    const messages = ["system", "user", "assistant"].map((role) => ({ role, content: "a cat" }));
    const texts = (await applyDetectors(core, contextWith(lines), messages)).map(({ content }) => content);
    expect(texts).toEqual(["$& c$&t", "a dog", "a dog"]);
  });

  test("look through no more than they can, and let others go on meanwhile", async () => {
    const lines = Array.from({ length: 2_000 }, (_, at): VariableLine => [
      "super_detector",
      `SuperDetector${at}`,
      `aaaaaaab${at}`,
      { output: "" },
    ]);
    let hadTurn = false;
    setImmediate(() => (hadTurn = true));
    const some = contextWith(variables(...lines.slice(0, 200)));
    const messages = [{ role: "user", content: "a".repeat(1_000_000) }];
    expect((await applyDetectors(core, some, messages))[0]).toBe(messages[0]);
    expect(hadTurn).toBe(true);
    const longer = [{ role: "user", content: "x".repeat(1_000_000) }];
    await expect(applyDetectors(core, contextWith(variables(...lines)), longer)).rejects.toMatchObject({
      code: "placeholder_limit",
      message: expect.stringContaining("more detectors than can look through messages of this length"),
    });
  });

  test("count before they replace: more than any text can be is refused like the rest", async () => {
    const lines = variables(["super_detector", "SuperDetector1", "a", { output: "x".repeat(65_536) }]);
    const run = applyDetectors(core, contextWith(lines), [{ role: "user", content: "a".repeat(9_000) }]);
    await expect(run).rejects.toMatchObject({ code: "placeholder_limit", details: { param: "SuperDetector1" } });
  });

  test("that lengthen messages without end are refused by name", async () => {
    const lines = variables(
      ...[1, 2, 3, 4].map((at): VariableLine => ["detector", `Detector${at}`, "a", { output: "a".repeat(60) }]),
    );
    const context = contextWith(lines, { placeholder_chars_max: 1_000 });
    await expect(applyDetectors(core, context, [{ role: "system", content: "a" }])).rejects.toMatchObject({
      code: "placeholder_limit",
      details: { param: "Detector2" },
    });
  });
});

describe("what comes to too much", () => {
  const tower = (top: string): VariableLine[] =>
    Array.from({ length: 30 }, (_, at) => ["var", `Var${at}`, at === 29 ? top : `{{Var${at + 1}}}`.repeat(10)]);

  test("characters are refused, naming a variable and the setting", async () => {
    const run = system(tower("x"), "{{Var0}}", { settings: { placeholder_chars_max: 100_000 } });
    await expect(run).rejects.toMatchObject({
      code: "placeholder_limit",
      details: { param: expect.stringMatching(/^Var\d+$/) },
      message: expect.stringContaining("more than 100000 characters, the setting 'placeholder_chars_max'"),
    });
  });

  test("is not read in the first place", async () => {
    let read = 0;
    const contents = (_tenant: string, ids: readonly string[]): Promise<[]> =>
      Promise.resolve(((read += ids.length), []));
    const deps = { ...core, repos: { ...core.repos, variables: { ...core.repos.variables, contents } } };
    const large = (kind: VariableKind, name: (at: number) => string): readonly VariableEntry[] =>
      variables(...Array.from({ length: 40 }, (_, at): VariableLine => [kind, name(at), `large ${at}`])).map(
        (entry) => ({ ...entry, content: null, hash: `unread ${entry.id}`, bytes: 1_000_000 }),
      );
    const limit = { code: "placeholder_limit" };
    const vars = large("var", (at) => `Var${at}`);
    const all = [{ role: "system", content: vars.map(({ name }) => `{{${name}}}`).join("") }];
    const options = { model: "", sources: sources({}) };
    await expect(expandPlaceholders(deps, contextWith(vars), all, options)).rejects.toMatchObject({
      ...limit,
      details: { param: "Var15" },
    });
    const emojis = large("emoji", (at) => `${at}表情包`);
    const list = [{ role: "system", content: "{{EmojiList}}" }];
    await expect(expandPlaceholders(deps, contextWith(emojis), list, options)).rejects.toMatchObject(limit);
    const detectors = large("detector", (at) => `Detector${at}`);
    await expect(applyDetectors(deps, contextWith(detectors), list)).rejects.toMatchObject(limit);
    expect(read).toBe(0);
    // What is for other models is none of it.
    const sars = large("sar", (at) => `SarPrompt${at}`);
    const forModel = [{ role: "system", content: "{{SarPromptAll}}{{SarPrompt0}}" }];
    expect((await expandPlaceholders(deps, contextWith(sars), forModel, options))[0]?.["content"]).toBe("");
    expect(read).toBe(0);
  });

  test("results of tasks are refused, and those after them not read", async () => {
    let asked = 0;
    const text = "x".repeat(400_000);
    const around = { ...sources({}), asyncText: () => Promise.resolve(((asked += 1), text)) };
    const content = Array.from({ length: 100 }, (_, at) => `{{VCP_ASYNC_RESULT::P::${at}}}`).join("");
    await expect(expand([], [{ role: "user", content }], { around })).rejects.toMatchObject({
      code: "placeholder_limit",
      details: { param: "VCP_ASYNC_RESULT::P::12" },
    });
    expect(asked).toBe(16);
  });

  test("nothing, 10^29 times, is nothing", async () => {
    const around = sources({ values: { Empty: "" } });
    expect(await system(tower("{{Empty}}"), "<{{Var0}}>", { around })).toBe("<>");
  });

  test("contents in contents are refused, naming the first", async () => {
    const lines = Array.from({ length: 60 }, (_, at): VariableLine => ["var", `Var${at}`, `{{Var${at + 1}}}`]);
    await expect(system(lines, "{{Var3}}")).rejects.toMatchObject({
      code: "placeholder_limit",
      details: { param: "Var3" },
      message: expect.stringContaining("more than 32 contents"),
    });
  });
});
