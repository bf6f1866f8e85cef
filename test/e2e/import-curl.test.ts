/**
 * A curl command becomes a tool that sends what curl sends: each command is run by a real shell and a real
 * curl first, and the tool's request is held against that one.
 */
import { execFile } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import type { Json, TestTenant } from "../support/gateway-client.ts";
import { startGateway, type Gateway } from "../support/gateway.ts";
import { startHttpStub, type HttpStub, type RecordedRequest } from "../support/http-stub.ts";
import { verifies } from "../support/verifies.ts";

const run = promisify(execFile);

let gateway: Gateway;
let backEnd: HttpStub;
let directory: string;
let tenant: TestTenant;

beforeAll(async () => {
  gateway = await startGateway();
  backEnd = await startHttpStub();
  directory = await mkdtemp(join(tmpdir(), "toolyard-curl-"));
  await writeFile(join(directory, "a.png"), "PNG bytes");
});
afterAll(async () => {
  await gateway.close();
  await backEnd.close();
  await rm(directory, { recursive: true, force: true });
});
beforeEach(async () => {
  tenant = await gateway.newTenant();
  backEnd.requests.length = 0;
});

/** `URL` stands for the back end. */
const at = (command: string): string => command.replaceAll("URL", backEnd.url);
const importing = (command: string, more: Json = {}): Promise<Json> =>
  tenant.client.post("/v1/plugins/import", { curl: at(command), ...more });

async function sentByCurl(command: string): Promise<RecordedRequest> {
  await run("bash", ["-c", at(command)], {
    cwd: directory,
    env: { PATH: process.env["PATH"], LC_ALL: "C.UTF-8", TOKEN: "t-from-shell" },
  });
  return lastRequest();
}

async function sentByTool(name: string, args: Json = {}): Promise<RecordedRequest> {
  await tenant.client.post("/v1/tools/invoke", { name, arguments: args });
  return lastRequest();
}

function lastRequest(): RecordedRequest {
  const request = backEnd.requests.at(-1);
  if (request === undefined) throw new Error("nothing was sent");
  return request;
}

/** What a back end acts on. */
function essence({ method, target, headers, body }: RecordedRequest): Json {
  const url = new URL(target, "http://stub");
  const type = String(headers["content-type"] ?? "").replace(/boundary=.*$/, "boundary=…");
  const names = ["authorization", "x-api-key", "cookie", "x-trace", "accept", "referer", "user-agent"];
  const own = Object.fromEntries(names.flatMap((name) => (headers[name] === undefined ? [] : [[name, headers[name]]])));
  return {
    method,
    path: url.pathname,
    query: [...url.searchParams].map((pair) => pair.join("=")).sort(),
    type,
    headers: own,
    body: readBody(type, body),
  };
}

function readBody(type: string, body: Buffer): Json {
  if (type.startsWith("application/json") && body.length > 0) return JSON.parse(body.toString());
  if (type.startsWith("application/x-www-form")) return [...new URLSearchParams(body.toString())];
  if (!type.startsWith("multipart")) return body.toString("latin1");
  const parts = body.toString("latin1").split(/--[\w-]+(?:--)?\r\n/);
  const read = (part: string): string =>
    /name="([^"]*)"/.exec(part)?.[1] + "=" + (part.split("\r\n\r\n")[1] ?? "").trim();
  return parts.filter((part) => part.includes("name=")).map(read);
}

/** Without what differs because we are not curl. */
function comparable(request: RecordedRequest, command: string): Json {
  const { headers, ...rest } = essence(request);
  const { "user-agent": agent, accept, ...others } = headers;
  return {
    ...rest,
    headers: {
      ...others,
      ...(/ -A | --user-agent /.test(command) ? { agent } : {}),
      ...(/accept:|--json/i.test(command) ? { accept } : {}),
    },
  };
}

describe(`a curl command without secrets ${verifies("BLIND-1", "BLIND-2")}`, () => {
  test.each([
    "curl URL/users",
    "curl 'URL/search?q=a%20b&limit=10&exact=true&tag=x&tag=y&empty='",
    "curl -X DELETE URL/users/7",
    "curl -XPUT URL/users/7 -d name=Ann",
    "curl URL/form -d a=1 -d 'b=x y&c=%26'",
    "curl URL/form --data-urlencode 'memo=测试 a&b=c' --data-urlencode plain -d live=false",
    "curl -G URL/search -d q=cats --data-urlencode 'filter=a&b'",
    `curl URL/json -H 'Content-Type: application/json' -d '{"name":"Ann","age":7,"ok":false,"none":null,"tags":["a"],"deep":{"x":[1,{"y":2}]}}'`,
    `curl --json '{"a":1}' URL/json`,
    `curl URL/list -H "content-type: application/json; charset=utf-8" --data-raw '[1,2,"@x"]'`,
    "curl URL/text -H 'Content-Type: text/plain' --data-binary $'line 1\\nline 2\\t\\u00e9'",
    "curl URL/xml -H 'Content-Type: application/xml' -d '<a>1</a>'",
    "curl URL/multi -F name=Ann -F 'note=a b;type=text/markdown' -F n=7",
    "curl URL/twice -H 'X-Trace: a' -H 'x-trace: b'",
    "curl URL/headers -H 'X-Trace: on' -H 'Accept: application/vnd.x+json' -A 'agent 1' -e http://from.example/",
    "curl -sSL --compressed --max-time 20 --retry 3 -o /dev/null URL/quiet",
    'curl "URL/quotes?a=\\"b\\"&c=\'d\'&e=$(true)"'.replace("$(true)", "\\$f"),
    "curl \\\n  -X PATCH \\\n  URL/lines \\\n  -d 'a=1'",
    "$ curl URL/prompt",
    "curl --request POST --url URL/long --header 'Content-Type: application/x-www-form-urlencoded' --data a=b",
    "TOKEN=1 curl -X POST URL/none",
    "curl URL/pipe?x=1 | cat",
  ])("%s", async (command) => {
    const expected = await sentByCurl(command.replace(/^\$ /, ""));
    const { operations, credentials, credentials_found: found } = await importing(command);
    expect([credentials, found]).toEqual([[], []]);
    expect(comparable(await sentByTool(operations[0].name), command)).toEqual(comparable(expected, command));
  });

  test.each([
    "curl URL/topic -d 'Backup done, 3 files 😀'",
    "curl 'URL/write?db=d' --data-binary 'cpu,host=a value=0.64 1434055562'",
    "curl URL/sql --data-binary 'SELECT name FROM t WHERE a=1&b=2'",
    `curl URL/metrics --data-binary $'up{job="x"} 1\n'`,
    "curl URL/raw --data-raw '@not-a-file'",
    "curl URL/nothing -d ''",
  ])("sends what is no form as it stands: %s", async (command) => {
    const expected = await sentByCurl(command);
    const { operations } = await importing(command);
    const sent = await sentByTool(operations[0].name);
    expect([sent.target, sent.headers["content-type"]]).toEqual([expected.target, expected.headers["content-type"]]);
    expect(sent.body.toString()).toBe(expected.body.toString());
    if (expected.body.length === 0) return;
    expect((await sentByTool(operations[0].name, { body: "another text" })).body.toString()).toBe("another text");
  });

  test("says that a content type without a body is left out", async () => {
    const { operations } = await importing("curl -X POST URL/none -H 'Content-Type: application/json'");
    expect(operations[0].warnings).toEqual(["The content type is left out: the command has no body."]);
  });

  test("gives its values as defaults, each of which a call may change", async () => {
    const { operations } = await importing(`curl 'URL/users/7?limit=10' -X POST --json '{"name":"Ann","age":7}'`, {
      name: "add_user",
    });
    expect(operations[0]).toMatchObject({
      name: "add_user",
      action: "added",
      definition: {
        parameters: {
          properties: {
            limit: { type: "integer", default: 10 },
            name: { type: "string", default: "Ann" },
            age: { type: "integer", default: 7 },
          },
        },
      },
    });
    const sent = await sentByTool("add_user", { limit: 20, name: "Bob" });
    expect(sent.target).toBe("/users/7?limit=20");
    expect(JSON.parse(sent.body.toString())).toEqual({ name: "Bob", age: 7 });
  });

  test("asks for what the shell or a file would have given", async () => {
    const { operations } = await importing(
      "curl \"URL/users/$USER_ID/{part}?q=$QUERY&n=1\" -F 'photo=@a.png;type=image/png' -F 'note=<a.txt'",
      { name: "upload" },
    );
    const { parameters } = operations[0].definition;
    expect(parameters.required).toEqual(["USER_ID", "part", "q", "photo", "note"]);
    expect(operations[0].warnings).toEqual([expect.stringContaining("Files are not read")]);
    const args = { USER_ID: "a/b", part: "p", q: "x", photo: Buffer.from("PNG bytes").toString("base64"), note: "hi" };
    const sent = await sentByTool("upload", args);
    expect(sent.target).toBe("/users/a%2Fb/p?q=x&n=1");
    expect(sent.body.toString()).toContain(
      'name="photo"; filename="photo"\r\ncontent-type: image/png\r\n\r\nPNG bytes\r\n',
    );
    const { operations: raw } = await importing("curl -T a.png URL/files/a.png", { name: "put_file" });
    expect(raw[0].definition.execution).toMatchObject({
      method: "PUT",
      content_type: "application/octet-stream",
      body_param: "body",
    });
    expect((await sentByTool("put_file", { body: args.photo })).body.toString()).toBe("PNG bytes");
  });

  test("imported again changes nothing, and is found by its address whatever its values are", async () => {
    const first = await importing("curl 'URL/users?limit=10'");
    expect((await importing("curl 'URL/users?limit=10' -s")).diff.unchanged).toEqual(first.diff.added);
    const changed = await importing("curl 'URL/users?limit=20'");
    expect(changed.diff.changed).toEqual([
      { name: first.diff.added[0], fields: ["parameters.properties.limit.default"] },
    ]);
  });

  test("is a document of its own: no tool of another command is missing", async () => {
    await importing("curl URL/one");
    const second = await importing("curl URL/two", { remove_missing: true });
    expect(second.diff).toMatchObject({ added: ["get_two"], removed: [] });
    const { data } = await tenant.client.get("/v1/plugins");
    expect(data.map(({ name }: Json): string => name)).toEqual(expect.arrayContaining(["get_one", "get_two"]));
  });

  test("keeps its name, and says so where another one is asked for", async () => {
    await importing("curl URL/one", { name: "first" });
    const { operations } = await importing("curl URL/one", { name: "better" });
    expect(operations[0]).toMatchObject({ name: "first", warnings: [expect.stringContaining("'first'")] });
    const other = await importing("curl URL/two", { name: "first" });
    expect(other.operations[0].warnings).toEqual([expect.stringContaining("'first'")]);
  });
});

describe(`secrets in a curl command ${verifies("BLIND-3", "BLIND-5", "BLIND-6")}`, () => {
  const secret = "s3cr3t-value-123";
  const own = (part: string): string => `http:127.0.0.1:${backEnd.port}:${part}`;

  test.each([
    [`curl URL/a -H 'Authorization: Bearer ${secret}'`, "bearer", ["authorization"]],
    [`curl URL/a --oauth2-bearer ${secret}`, "bearer", ["authorization"]],
    [`curl URL/a -u ann:${secret}`, "basic", ["username", "password"]],
    [
      `curl URL/a -H 'Authorization: Basic ${Buffer.from(`ann:${secret}`).toString("base64")}'`,
      "basic",
      ["username", "password"],
    ],
    [`curl http://ann:${secret}@HOST/a`, "basic", ["username", "password"]],
    [`curl URL/a -H 'X-Api-Key: ${secret}'`, "api_key", ["x-api-key"]],
    [`curl 'URL/a?api_key=${secret}&q=1'`, "api_key", ["api_key"]],
    [`curl URL/a -H 'X-Master-Key: ${secret}'`, "api_key", ["x-master-key"]],
    [`curl URL/a -b 'sid=${secret}; theme=dark'`, "api_key", ["cookie"]],
    [`curl URL/a -H 'Authorization: token ${secret}'`, "api_key", ["authorization"]],
    [
      `curl URL/a -H 'Authorization: Bearer ${secret}' -H 'X-Api-Key: k-${secret}'`,
      "api_key",
      ["authorization", "x-api-key"],
    ],
    [`curl URL/a -u ann:${secret} -H 'X-Api-Key: k-${secret}'`, "api_key", ["x-api-key", "authorization"]],
    [`curl URL/login -d 'user=ann&password=${secret}'`, "api_key", ["password"]],
    [`curl --json '{"user":"ann","client_secret":"${secret}"}' URL/login`, "api_key", ["client_secret"]],
    [`curl --json '{"app_key":"${secret}"}' URL/login`, "api_key", ["app_key"]],
    [`curl URL/login -F user=ann -F access_token=${secret}`, "api_key", ["access_token"]],
    [`curl URL/x -H 'token: ${secret}' --json '{"token":"b-${secret}"}'`, "api_key", ["token", "body.token"]],
  ])("%s", async (written, type, parts) => {
    const command = written.replace("HOST", `127.0.0.1:${backEnd.port}`);
    const expected = await sentByCurl(command);
    const dry = await tenant.client.send("post", "/v1/plugins/import", {
      curl: at(command),
      dry_run: true,
      store_credentials: true,
    });
    expect(dry.text).not.toContain(secret);
    expect(dry.json.credentials_found).toEqual(parts.map(own));
    expect(dry.json.operations[0].definition.auth_config.type).toBe(type);
    expect((await tenant.client.get("/v1/credentials")).data).toEqual([]);

    const kept = await tenant.client.send("post", "/v1/plugins/import", { curl: at(command) });
    expect(kept.text).not.toContain(secret);
    const [{ name }] = kept.json.operations;
    const call = await tenant.client.send("post", "/v1/tools/invoke", { name });
    expect(call.json.error).toMatchObject({ code: "credential_missing" });

    const stored = await importing(command, { store_credentials: true });
    expect(
      stored.credentials.map(({ name: named, stored: isStored }: Json): string => `${named} ${isStored}`).sort(),
    ).toEqual(parts.map((part) => `${own(part)} true`).sort());
    expect(comparable(await sentByTool(name), command)).toEqual(comparable(expected, command));
    // Neither a definition nor a log line holds it.
    expect(JSON.stringify(await tenant.client.get("/v1/plugins?limit=100"))).not.toContain(secret);
    expect(JSON.stringify(gateway.logged)).not.toContain(secret);
  });

  test.each([
    ['/bot110201543:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw/sendMessage --json \'{"text":"hi"}\'', "path_secret_0b5dd075"],
    ['/services/T0ABCDEF1/B0ABCDEF2/abcdefABCDEF1234567890xy --json \'{"text":"hi"}\'', "path_secret_0626dca7"],
    ["/webhook/3f2504e0-4f89-41d3-9a0c-0305e82c3301 -d text=hi", "path_secret_16362f56"],
    ["/v2/send?access_key=0123456789abcdef0123456789abcdef -d text=hi", "access_key"],
    ["/trigger/lamp/with/key/0123456789abcdef0123456789abcdef", "path_secret_3eb1bd43"],
  ])("in the path are credentials, too: %s", async (rest, part) => {
    const command = `curl URL${rest}`;
    const expected = await sentByCurl(command);
    const reply = await tenant.client.send("post", "/v1/plugins/import", {
      curl: at(command),
      store_credentials: true,
    });
    expect(reply.json.credentials).toEqual([expect.objectContaining({ name: own(part), stored: true })]);
    expect(reply.text).not.toMatch(/AAHdq|abcdefABC|0123456789abcdef|3f2504e0/);
    const [{ name }] = reply.json.operations;
    expect(comparable(await sentByTool(name), command)).toEqual(comparable(expected, command));
    const explained = await tenant.client.post("/v1/tools/explain", { name });
    expect(decodeURIComponent(explained.request.url)).toContain(`***${own(part)}`);
    expect(JSON.stringify(gateway.logged)).not.toMatch(/AAHdq|abcdefABC|0123456789abcdef|3f2504e0/);
  });

  test("that the shell would have filled in are named and have to be stored", async () => {
    const result = await importing('curl URL/a -H "Authorization: Bearer $TOKEN"', { store_credentials: true });
    expect(result.credentials).toEqual([expect.objectContaining({ name: own("authorization"), stored: false })]);
    await tenant.putCredential(own("authorization"), "t-from-shell");
    const expected = await sentByCurl('curl URL/a -H "Authorization: Bearer $TOKEN"');
    expect((await sentByTool(result.operations[0].name)).headers["authorization"]).toBe(
      expected.headers["authorization"],
    );
  });

  test("further in a body of JSON are sent where they stood", async () => {
    const merchant = `{"name":"ann","apiKey":"${secret}","inner":{"a/b":{"password":"${secret}2"}}}`;
    const command = `curl --json '{"merchant":${merchant},"auth":{"token":"${secret}3"},"amount":3}' URL/pay`;
    const expected = await sentByCurl(command);
    const result = await tenant.client.post("/v1/plugins/import", { curl: at(command), store_credentials: true });
    expect(JSON.stringify(result)).not.toContain(secret);
    const { name, definition } = result.operations[0];
    expect(Object.keys(definition.parameters.properties).sort()).toEqual(["amount", "merchant"]);
    expect(definition.parameters.properties.merchant.default).toEqual({ name: "ann" });
    expect(definition.auth_config.mapping).toEqual([
      { source: own("merchant.apikey"), target: "/merchant/apiKey", location: "body" },
      { source: own("merchant.inner.a_b.password"), target: "/merchant/inner/a~1b/password", location: "body" },
      { source: own("auth.token"), target: "/auth/token", location: "body" },
    ]);
    expect(JSON.parse(String((await sentByTool(name)).body))).toEqual(JSON.parse(String(expected.body)));
  });

  test.each([
    `curl --json '[{"token":"${secret}"}]' URL/login`,
    `curl URL/login -F 'login={"password":"${secret}"};type=application/json'`,
    `curl --json '{"config":{"access_tokens":["${secret}"],"user":"ann"}}' URL/login`,
    `curl --json '{"config":{"password":{"value":"${secret}"}}}' URL/login`,
    `curl URL/login -H 'Content-Type: application/xml' -d '<a><password>${secret}</password></a>'`,
    `curl URL/login -H 'Content-Type: text/plain' -d 'api-key: ${secret}'`,
    `curl --json '{"payload":{"text":"{\\"password\\":\\"${secret}\\"}"}}' URL/login`,
  ])("in a body are kept nowhere: each call brings them: %s", async (command) => {
    const reply = await tenant.client.send("post", "/v1/plugins/import", {
      curl: at(command),
      store_credentials: true,
    });
    expect(reply.status).toBe(200);
    expect(reply.text).not.toContain(secret);
    expect(reply.json.operations[0].definition.parameters.required).toHaveLength(1);
    expect((await tenant.client.get("/v1/credentials")).data).toEqual([]);
  });

  test.each([
    [`curl 'URL/a -H x:${secret}`, /quote/],
    [`curl URL/a --unknown-option ${secret}`, /--unknown-option/],
    [`curl -Q ${secret} URL/a`, /-Q/],
    [`curl -H "Authorization: Bearer $(cat ${secret})" URL/a`, /not run/],
    ["curl `cat x` URL/a", /not run/],
    [`wget URL/${secret}`, /begin with the word curl/],
    [`curl -H 'X: ${secret}'`, /no URL/],
    [`curl -I URL/a -u ${secret}`, /HEAD/],
    [`curl ftp://ann:${secret}@example.com/`, /http/],
    [`curl "https://$HOST/a?key=${secret}"`, /variable/],
    [`curl URL/a -d`, /without a value/],
  ])("are not repeated where a command is refused: %s", async (command, reason) => {
    const reply = await tenant.client.send("post", "/v1/plugins/import", { curl: at(command) });
    expect(reply).toMatchObject({
      status: 400,
      json: { error: { code: "invalid_request", param: "curl", message: expect.stringMatching(reason) } },
    });
    expect(reply.text).not.toContain(secret);
  });

  test("are not sent to an address that tools may not reach", async () => {
    const reply = await tenant.client.send("post", "/v1/plugins/import", {
      curl: `curl -u a:${secret} http://169.254.169.254/latest`,
      store_credentials: true,
    });
    expect(reply).toMatchObject({ status: 403, json: { error: { code: "egress_denied" } } });
    expect((await tenant.client.get("/v1/credentials")).data).toEqual([]);
  });
});

describe(`what only sounds like a secret in a curl command ${verifies("BLIND-1", "BLIND-3")}`, () => {
  test("of fields and parameters stays an argument with its value", async () => {
    const { operations, credentials_found: found } = await importing(
      `curl 'URL/chat?pageToken=abc&hide_secret=true' --json '{"model":"m","max_tokens":100,"tokenizer":"t","logprobs":{"token_type":"x"}}'`,
    );
    expect(found).toEqual([]);
    const { properties, required } = operations[0].definition.parameters;
    expect(properties).toMatchObject({
      pageToken: { default: "abc" },
      hide_secret: { default: true },
      max_tokens: { default: 100 },
      tokenizer: { default: "t" },
      logprobs: { default: { token_type: "x" } },
    });
    expect(required).toBeUndefined();
  });

  test("of headers stays one", async () => {
    const { operations, credentials_found: found } = await importing(
      "curl URL/a -H 'X-Atlassian-Token: no-check' -H 'X-Token-Type: bearer' -H 'X-Session-Affinity: a'",
    );
    expect(found).toEqual([]);
    expect(operations[0].definition.execution.headers).toEqual({
      "X-Atlassian-Token": "no-check",
      "X-Token-Type": "bearer",
      "X-Session-Affinity": "a",
    });
  });

  test("and is one by its form is kept nowhere, whatever it is called", async () => {
    const key = "sk-proj-Ab3dEf6hIj9kLm2nOp5qRs8tUv1wXy4z";
    const reply = await tenant.client.send("post", "/v1/plugins/import", {
      curl: at(`curl 'URL/a?q=${key}' --json '{"input":"${key}","list":[["${key}"]]}'`),
    });
    expect(reply.status).toBe(200);
    expect(reply.text).not.toContain(key);
    expect(reply.json.operations[0].definition.parameters.required).toEqual(["list"]);
  });
});

describe(`what a tool does not do as curl does ${verifies("BLIND-1")}`, () => {
  test.each([
    ["curl -k URL/a", "certificates"],
    ["curl -x http://proxy.example:8080 URL/a", "'-x'"],
    ["curl --cert me.pem URL/a", "'--cert'"],
    ["curl URL/a URL/b", "first URL"],
    ["curl URL/a --next URL/b", "--next"],
    ["curl URL/a && rm -rf /", "first command"],
    ["curl URL/a\ncurl URL/b", "first command"],
    ["curl URL/sheets/1BxiMVs0XRA5nFMdKvBdBZjgmUUqptlbs74OgvE2upms/values", "may be a secret"],
    ["curl -H 'Host: other.example' URL/a", "'Host'"],
    [`curl URL/a -d '{"a":1}'`, "application/json"],
  ])("%s is said", async (command, word) => {
    const { operations } = await importing(command, { dry_run: true });
    expect(operations[0].warnings).toEqual([expect.stringContaining(word)]);
  });
});
