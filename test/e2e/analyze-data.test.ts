/** Questions in SQL about files of a session: CSV of every kind, workbooks, JSON; large ones, and hostile ones. */
import { packZip } from "@toolyard/core/zip";
import { newId } from "@toolyard/core/ids";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { startGateway, type Gateway } from "../support/gateway.ts";
import type { Json, Reply, TestTenant } from "../support/gateway-client.ts";
import { calls, startLlmStub, text, type LlmStub } from "../support/llm-stub.ts";
import { verifies } from "../support/verifies.ts";

let gateway: Gateway;
let llm: LlmStub;
let tenant: TestTenant;
let session: string;

beforeAll(async () => {
  [gateway, llm] = await Promise.all([startGateway(), startLlmStub()]);
});

afterAll(async () => {
  await Promise.all([gateway.close(), llm.close()]);
});

beforeEach(async () => {
  tenant = await gateway.newTenant({ native_tools: ["analyze_data"], workspace_bytes: 200_000_000 });
  await tenant.addProvider(llm.url);
  session = newId("session");
});

function put(name: string, body: string | Uint8Array): Promise<Reply> {
  const raw = Uint8Array.from(Buffer.from(body));
  return tenant.client.send("put", `/v1/sessions/${session}/files/${name}`, undefined, { raw });
}

function send(args: Json): Promise<Reply> {
  return tenant.client.send("post", "/v1/tools/invoke", {
    name: "analyze_data",
    arguments: args,
    session_id: session,
  });
}

async function ask(args: Json): Promise<Json> {
  const { json } = await send(args);
  expect(json.error, JSON.stringify(json.error)).toBeUndefined();
  return JSON.parse(json.content);
}

async function errorOf(args: Json): Promise<Json> {
  return (await send(args)).json.error;
}

describe(`files are tables ${verifies("NATIVE-2", "NATIVE-1")}`, () => {
  test("a model asks, in SQL, and has rows with their types", async () => {
    await put("sales.csv", "city,amount,day\n北京,10,2026-01-01\n上海,2.5,2026-01-02\n北京,1,2026-02-01\n");
    const sql = "SELECT city, sum(amount) AS total, count(*) AS n FROM sales GROUP BY city ORDER BY total DESC";
    llm.script(calls({ name: "analyze_data", arguments: { files: ["sales.csv"], sql } }), text("done"));
    await tenant.client.post("/v1/chat/completions", {
      messages: [{ role: "user", content: "go" }],
      session_id: session,
    });
    const messages = llm.requests.at(-1)?.["messages"] as Json[];
    expect(JSON.parse(messages.find(({ role }) => role === "tool")?.content)).toEqual({
      tables: [{ name: "sales", file: "sales.csv", rows: 3 }],
      columns: [
        { name: "city", type: "text" },
        { name: "total", type: "real" },
        { name: "n", type: "integer" },
      ],
      row_count: 2,
      rows: [
        ["北京", 11, 2],
        ["上海", 2.5, 1],
      ],
    });
  });

  test("without SQL they are described, and what does not fit a column is said with its line", async () => {
    const lines = ["id;name;zip", ...Array.from({ length: 1_200 }, (_, at) => `${at};n${at % 7};0${at}`), "x;y;z;more"];
    await put("a b/people.csv", lines.join("\r\n"));
    const { tables } = await ask({ files: ["a b/people.csv"], describe: true });
    expect(tables).toMatchObject([
      {
        name: "people",
        rows: 1_201,
        columns: [
          { name: "id", type: "integer", exceptions: { count: 1, first_line: 1_202 }, stats: { min: 0, nulls: 0 } },
          { name: "name", type: "text", stats: { distinct: 8 } },
          { name: "zip", type: "text" },
        ],
        notes: [expect.stringContaining("line 1202 has 4 cells")],
        sample: [[0, "n0", "00"], expect.anything(), expect.anything(), expect.anything(), expect.anything()],
      },
    ]);
  });

  test("GBK, workbooks, JSON and NDJSON are joined as they come", async () => {
    await put(
      "g.csv",
      Buffer.concat([Buffer.from("k,v\n1,"), Buffer.from([0xc4, 0xe3, 0xba, 0xc3]), Buffer.from("\n")]),
    );
    await put("n.ndjson", '{"k":1,"x":{"deep":true}}\n{"k":2,"y":"later"}\n');
    await put("j.json", '{"data":[{"k":1,"j":1.5}]}');
    const sheet = (rows: string): Buffer => Buffer.from(`<worksheet><sheetData>${rows}</sheetData></worksheet>`);
    await put(
      "w.xlsx",
      await packZip([
        {
          path: "xl/workbook.xml",
          body: Buffer.from(
            '<workbook><sheets><sheet name="A" r:id="r1"/><sheet name="B" r:id="r2"/></sheets></workbook>',
          ),
        },
        {
          path: "xl/_rels/workbook.xml.rels",
          body: Buffer.from(
            '<R><Relationship Id="r1" Target="worksheets/s1.xml"/><Relationship Id="r2" Target="/xl/worksheets/s2.xml"/></R>',
          ),
        },
        {
          path: "xl/worksheets/s1.xml",
          body: sheet(
            '<row><c t="inlineStr"><is><t>k</t></is></c><c t="inlineStr"><is><t>w</t></is></c></row><row><c><v>1</v></c><c><v>7</v></c></row>',
          ),
        },
        { path: "xl/worksheets/s2.xml", body: sheet("<row><c><v>5</v></c></row>") },
      ]),
    );
    const answer = await ask({
      files: ["g.csv", "n.ndjson", "j.json", "w.xlsx"],
      sql: "SELECT g.v, json_extract(n.x, '$.deep') AS deep, j.j, w_A.w, w_B.column_1 FROM g JOIN n USING (k) JOIN j USING (k) JOIN w_A USING (k), w_B",
    });
    expect(answer.rows).toEqual([["你好", 1, 1.5, 7, 5]]);
  });

  test("numbers in JSON keep their digits, in NDJSON and within lists too", async () => {
    await put(
      "j.json",
      '[{"id":1234567890123456789,"of":[9007199254740993],"said":"\\\\\\",1234567890123456789,"},{"id":7,"of":[]}]',
    );
    await put(
      "n.ndjson",
      '{"id":1234567890123456789,"big":123456789012345678901,"real":0.12345678901234567}\n{"id":5}\n',
    );
    const answer = await ask({
      files: ["j.json", "n.ndjson"],
      sql: "SELECT j.id, j.of, j.said, n.id, n.big, n.real FROM j JOIN n USING (id)",
    });
    expect(answer.rows).toEqual([
      [
        "1234567890123456789",
        '["9007199254740993"]',
        '\\",1234567890123456789,',
        "1234567890123456789",
        "123456789012345678901",
        expect.closeTo(0.123456789, 9),
      ],
    ]);
    const { tables } = await ask({ files: ["j.json"] });
    expect(tables[0].sample).toEqual([
      ["1234567890123456789", '["9007199254740993"]', '\\",1234567890123456789,'],
      ["7", "[]", null],
    ]);
  });

  test("names of JSON that SQLite takes for one are columns of their own, also later ones", async () => {
    await put("j.json", '[{"id":1,"ID":2},{"Id":3,"a\\u0000b":4}]');
    const late = Array.from({ length: 1_002 }, (_none, at) => (at > 999 ? `{"Id":${at}}` : `{"id":${at}}`));
    await put("late.ndjson", late.join("\n"));
    expect((await ask({ files: ["j.json"], sql: "SELECT id, ID_2, Id_3, [a b] FROM j" })).rows).toEqual([
      [1, 2, null, null],
      [null, null, 3, 4],
    ]);
    expect(
      (await ask({ files: ["late.ndjson"], sql: "SELECT count(id), count(Id_2), max(Id_2) FROM late" })).rows,
    ).toEqual([[1_000, 2, "1001"]]);
  });

  test("JSON without rows or without names is a table with nothing in it", async () => {
    for (const [name, body, rows] of [
      ["list.json", "[]", 0],
      ["object.json", "[{}]", 1],
      ["lines.ndjson", "", 0],
    ] as const) {
      await put(name, body);
      const { tables } = await ask({ files: [name] });
      expect(tables[0]).toMatchObject({ rows, columns: [{ name: "column_1" }] });
    }
  });

  test("rows and bytes have an end, which is said", async () => {
    await put("t.csv", `n\n${Array.from({ length: 500 }, (_, at) => at).join("\n")}\n`);
    const answer = await ask({ files: ["t.csv"], sql: "SELECT n FROM t ORDER BY n", limit: 3 });
    expect(answer).toMatchObject({ rows: [[0], [1], [2]], truncated: true, note: expect.stringContaining("'limit'") });
  });
});

describe(`what is asked stays within the tables ${verifies("NATIVE-2")}`, () => {
  beforeEach(() => put("t.csv", "a,b\n1,2\n"));

  test.each([
    "DELETE FROM t",
    "UPDATE t SET a = 2",
    "CREATE TABLE x (a)",
    "ATTACH '/etc/passwd' AS p",
    "PRAGMA query_only = 0",
    "SELECT load_extension('x')",
    "VACUUM INTO '/tmp/x'",
    "BEGIN",
  ])("%s is refused", async (sql) => {
    expect(await errorOf({ files: ["t.csv"], sql })).toMatchObject({ code: "invalid_arguments", param: "sql" });
  });

  test("of several statements none is answered as if it were all", async () => {
    const error = await errorOf({ files: ["t.csv"], sql: "SELECT a FROM t; -- and\nSELECT b FROM t" });
    expect(error).toMatchObject({ code: "invalid_arguments", param: "sql" });
    expect(error.message).toContain("must be one SELECT");
    const { rows } = await ask({ files: ["t.csv"], sql: "SELECT ';' AS s FROM t; /* no more */ -- ;\n" });
    expect(rows).toEqual([[";"]]);
  });

  test("a mistake is answered with the tables and columns there are", async () => {
    const error = await errorOf({ files: ["t.csv"], sql: "SELECT c FROM t" });
    expect(error.message).toMatch(/no such column: c.*t\(a, b\)/);
  });

  test("a statement without an end is ended with its call", async () => {
    const quick = await gateway.newTenant({ native_tools: ["analyze_data"], tool_timeout_ms: 3_000 });
    tenant = quick;
    session = newId("session");
    await put("t.csv", "a,b\n1,2\n");
    const sql = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT count(*) FROM c";
    const error = await errorOf({ files: ["t.csv"], sql });
    expect(error).toMatchObject({ code: "tool_timeout", message: expect.stringContaining("tool_timeout_ms") });
  });

  test("a workbook that is a bomb, or has entities, is refused by name", async () => {
    await put("bomb.xlsx", await packZip([{ path: "xl/workbook.xml", body: Buffer.alloc(300_000_000) }]));
    await put(
      "xxe.xlsx",
      await packZip([
        {
          path: "xl/workbook.xml",
          body: Buffer.from('<!DOCTYPE a [<!ENTITY b SYSTEM "file:///etc/passwd">]><workbook/>'),
        },
      ]),
    );
    expect((await errorOf({ files: ["bomb.xlsx"] })).message).toMatch(/'bomb.xlsx' unpacks to more than/);
    expect((await errorOf({ files: ["xxe.xlsx"] })).message).toMatch(/document type or entities/);
    await put("open.csv", 'a,b\n1,"2\n3,4\n');
    expect((await errorOf({ files: ["open.csv"] })).message).toMatch(/line 2.*never closed/);
    expect(await errorOf({ files: ["none.csv"] })).toMatchObject({ code: "file_not_found" });
  });
});

describe(`a CSV of 100 MB ${verifies("NATIVE-2")}`, () => {
  test("is answered, and this process stays as small as it was", { timeout: 600_000 }, async () => {
    tenant = await gateway.newTenant({
      native_tools: ["analyze_data"],
      workspace_bytes: 300_000_000,
      tool_timeout_ms: 500_000,
    });
    const rows = 1_500_000;
    let id = 0;
    const raw = new ReadableStream<Uint8Array>({
      pull(controller) {
        let part = id === 0 ? "id,city,amount,note\n" : "";
        for (const end = Math.min(rows, id + 2_000); id < end; id += 1) {
          part += `${id},city ${id % 31},${(id % 997) / 4},"a note of some length, or of a little more: ${id % 1_000}"\n`;
        }
        controller.enqueue(Buffer.from(part));
        if (id === rows) controller.close();
      },
    });
    await tenant.client.send("put", `/v1/sessions/${session}/files/big.csv`, undefined, { raw });
    const [file] = (await tenant.client.get(`/v1/sessions/${session}/files`)).data;
    expect(file.bytes).toBeGreaterThan(100_000_000);
    const before = process.memoryUsage().rss;
    let most = before;
    const watch = setInterval(() => (most = Math.max(most, process.memoryUsage().rss)), 50);
    const sql = "SELECT city, count(*) AS n, round(sum(amount)) AS total FROM big GROUP BY city ORDER BY city LIMIT 2";
    const answer = await ask({ files: ["big.csv"], sql });
    clearInterval(watch);
    expect(answer.tables).toMatchObject([{ name: "big", rows }]);
    expect(answer.rows).toEqual([
      ["city 0", expect.any(Number), expect.any(Number)],
      ["city 1", expect.any(Number), expect.any(Number)],
    ]);
    expect(Math.round((most - before) / 1_048_576)).toBeLessThan(64);
  });
});
