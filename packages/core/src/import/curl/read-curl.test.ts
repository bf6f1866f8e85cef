import { describe, expect, test } from "vitest";
import { verifies } from "../../../../../test/support/verifies.ts";
import { readCurl, type ReadCurl } from "./read-curl.ts";

const read = (command: string): ReadCurl => readCurl(command, { prefix: "" });

describe(`the identity of a command ${verifies("BLIND-1")}`, () => {
  test("is its method, address and path, whatever else it has", () => {
    const ids = ["curl https://a.example/x?y=1", "curl -s https://a.example/x", "curl https://a.example/z"].map(
      (command) => read(command).document.id,
    );
    expect(ids).toEqual([
      "curl GET https://a.example/x",
      "curl GET https://a.example/x",
      "curl GET https://a.example/z",
    ]);
  });

  test("is short, and another one for another path, however long both are", () => {
    const [one, other] = ["a", "b"].map((end) => read(`curl https://a.example/${"x".repeat(1_000)}${end}`).document.id);
    expect(one).toHaveLength(500);
    expect(other).not.toBe(one);
  });
});

describe(`short secrets in a command ${verifies("BLIND-3", "BLIND-5")}`, () => {
  const secret = "Rex-24!";

  test.each([
    `-d 'password=${secret}&password_confirmation=${secret}'`,
    `-d 'token_value=${secret}'`,
    `--json '{"user":{"name":"Ann","passwordConfirm":"${secret}"}}'`,
    `--json '{"user":{"encryption_key":["${secret}"]}}'`,
    `--json '[{"secretAnswer":"${secret}"}]'`,
    `-H 'Content-Type: application/xml' -d '<user><masterKey>${secret}</masterKey></user>'`,
    `-F 'client_secret_value=${secret}'`,
    `-F 'payload={"password":"${secret}"}'`,
    `-d 'payload={"user":{"password":"${secret}"}}'`,
    `--json '{"payload":"[{\\"password\\":\\"${secret}\\"}]"}'`,
    `-H 'X-Token-Auth: ${secret}'`,
    `-H 'X-Session-Id: ${secret}'`,
  ])("stand in no definition: %s", (rest) => {
    const { candidates } = read(`curl https://api.example.com/x ${rest}`);
    expect(candidates).toHaveLength(1);
    expect(JSON.stringify(candidates)).not.toContain(secret);
  });

  test.each([
    [`-d 'password_confirmation=24681357'`, "24681357"],
    [`--json '{"user":{"passwordConfirm":24681357}}'`, "24681357"],
  ])("of digits stand in none either: %s", (rest, digits) => {
    expect(JSON.stringify(read(`curl https://api.example.com/x ${rest}`).candidates)).not.toContain(digits);
  });

  test("beyond those that a tool has room for are arguments, or left out where they are headers", () => {
    const fields = Array.from({ length: 20 }, (_one, at) => `p${at}_password=${secret}`).join("&");
    const long = "x".repeat(150);
    const command = `curl 'https://api.example.com/x?${long}_token=${secret}' -d '${fields}' -H 'X-Api-Key: ${secret}' -u a:b`;
    const { candidates, secrets } = read(command);
    expect(secrets.size).toBe(16);
    expect(JSON.stringify(candidates)).not.toContain(secret);
    expect(candidates[0]?.definition).toMatchObject({ parameters: { required: { length: 7 } } });
    const headers = Array.from({ length: 20 }, (_one, at) => `-H 'X-Key-${at}-Secret: ${secret}'`).join(" ");
    expect(read(`curl https://api.example.com/x ${headers}`).candidates[0]?.warnings).toHaveLength(5);
  });

  test("that are all of a body leave room for other fields in it", () => {
    const { definition } = read(`curl https://api.example.com/x?a=1 -d 'api_key=${secret}'`).candidates[0] ?? {};
    expect(definition).toMatchObject({
      execution: { param_placement: "body", param_overrides: { a: "query" } },
      auth_config: { mapping: [{ target: "api_key", location: "body" }] },
    });
  });

  test("are credentials where a variable stands for them", () => {
    const { candidates, secrets } = read(`curl https://api.example.com/x -H "X-Master-Key: $KEY"`);
    expect([...secrets.keys()]).toEqual(["api.example.com:x-master-key"]);
    expect(candidates).not.toMatchObject([{ definition: { execution: { headers: expect.anything() } } }]);
  });

  test("are none in what is only called alike", () => {
    const body = `{"session":{"model":"m"},"primaryKey":"id","project_key":"ABC","token_limit":500,"max_tokens":-1,"eos_token_id":2}`;
    const address = "https://api.example.com/x?spaceKey=DEV&pagination.key=FPoybu9dHOE&tokenId=44";
    const { candidates, secrets } = read(`curl '${address}' -H 'Idempotency-Key: abc' --json '${body}'`);
    expect(secrets.size).toBe(0);
    expect(candidates).not.toMatchObject([{ definition: { parameters: { required: expect.anything() } } }]);
  });
});

describe(`secrets in the path of a command ${verifies("BLIND-3", "BLIND-5")}`, () => {
  const uuid = "3f2504e0-4f89-41d3-9a0c-0305e82c3301";

  test.each([
    [
      "https://api.telegram.org/bot123456:ABC-DEF1234ghIkl-zyx57W2v1u123ew11/sendMessage",
      "123456:ABC-DEF1234ghIkl-zyx57W2v1u123ew11",
    ],
    ["https://hooks.slack.com/services/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", "Ab3dEf6hIj9lMn2pQr5tUv8x"],
    [`https://open.feishu.cn/open-apis/bot/v2/hook/${uuid}`, uuid],
    [`https://n8n.example.com/webhook-test/${uuid}`, uuid],
    ["https://hook.eu1.make.com/abcd1234efgh5678ijkl9012mnop3456", "abcd1234efgh5678ijkl9012mnop3456"],
    ["https://mm.example.com/hooks/x1y2z3a4b5c6d7e8f9g0h1i2j3", "x1y2z3a4b5c6d7e8f9g0h1i2j3"],
    ["https://maker.ifttt.com/trigger/lamp/with/key/dWx3pBvmAyHz1aZ8cQfR2t", "dWx3pBvmAyHz1aZ8cQfR2t"],
  ])("are what opens it to whoever knows it: %s", (address, secret) => {
    const { document, candidates, secrets } = read(`curl ${address} -d text=hi`);
    expect([...secrets.values()]).toEqual([secret]);
    expect(JSON.stringify([document, candidates])).not.toContain(secret);
  });

  test.each([
    "https://api.stripe.com/v1/payment_intents/pi_3MtwBwLkdIwHu7ix28a3tqPa",
    "https://api.cloudflare.com/client/v4/accounts/a/dns_records/372e67954025e0ba6aaa6d586b9e0b59",
    "https://api.elevenlabs.io/v1/text-to-speech/JBFqnCBsd6RMkjVDRZzb",
    "https://api.example.com/v1/webhooks/3MtwBwLkdIwHu7ix28a3tqPa",
  ])("are none where another key opens it: %s", (address) => {
    const { candidates, secrets } = read(`curl ${address} -H "Authorization: Bearer $KEY"`);
    expect([...secrets.keys()]).toEqual([`${new URL(address).host}:authorization`]);
    expect(candidates).toMatchObject([
      { definition: { execution: { base_url: address } }, warnings: [expect.stringContaining("may be a secret")] },
    ]);
    expect(candidates[0]?.wish).not.toContain(address.slice(-10));
  });

  test.each([
    ["https://oapi.dingtalk.com/robot/send?access_token=", "access_token"],
    ["https://qyapi.weixin.qq.com/cgi-bin/webhook/send?key=", "key"],
  ])("of the query tell one robot of a host from another: %s", (address, target) => {
    const of = (secret: string) => read(`curl "${address}${secret}" --json '{"msgtype":"text"}'`);
    const [one, other, again, unknown] = ["1a", "2b", "1a", ""]
      .map((start) => (start === "" ? "$KEY" : `${start}f2504e0-4f89-41d3-9a0c-0305e82c3301`))
      .map(of);
    const keys = [one, other, again, unknown].map((each) => each?.candidates[0]?.key);
    expect(new Set(keys).size).toBe(3);
    expect(keys[2]).toBe(keys[0]);
    const names = [one, other, again, unknown].map((each) => [...(each?.secrets.keys() ?? [])].join());
    expect(new Set(names).size).toBe(3);
    expect(names[0]).toMatch(new RegExp(`:${target}_[0-9a-f]{8}$`));
    expect(names[3]).toMatch(new RegExp(`:${target}$`));
    expect(one?.candidates[0]?.definition).toMatchObject({ auth_config: { mapping: [{ target, location: "query" }] } });
    expect(JSON.stringify(one?.candidates)).not.toContain("1af2504e0");
  });

  test("tell one webhook of a host from another, and one bot's methods by the same name", () => {
    const [one, other] = ["x1y2z3a4b5c6d7e8f9g0h1i2j3", "y1y2z3a4b5c6d7e8f9g0h1i2j3"].map((id) =>
      read(`curl https://mm.example.com/hooks/${id} -d text=hi`),
    );
    expect(one?.document.id).not.toBe(other?.document.id);
    expect([...(one?.secrets.keys() ?? [])]).not.toEqual([...(other?.secrets.keys() ?? [])]);
    const [send, look] = ["sendMessage", "getUpdates"].map(
      (method) => read(`curl https://api.telegram.org/bot123456:ABC-DEF1234ghIkl-zyx57W2v1u123ew11/${method}`).secrets,
    );
    expect(send).toEqual(look);
  });

  test.each([
    ['"https://api.example.com/bot$TOKEN/x"', ["api.example.com:token"]],
    ["'https://api.example.com/bot<YOUR_TOKEN>/x'", ["api.example.com:your_token"]],
    ['"https://api.example.com/sessions/$SESSION_ID"', []],
    ['"https://api.example.com/kv/$KEY" -u a:b', ["api.example.com:username", "api.example.com:password"]],
  ])("are variables that are called so, but no ids, and none beside another key: %s", (rest, names) => {
    expect([...read(`curl ${rest}`).secrets.keys()]).toEqual(names);
  });
});

describe(`what is a credential in a body ${verifies("BLIND-3", "BLIND-5")}`, () => {
  test.each([
    [`-d token=abc -d user=u`, ["api.example.com:token"]],
    [
      `--json '{"client_id":"c","secret":"s","public_token":"public-sandbox-b0e2c4ee-a763"}'`,
      ["api.example.com:secret"],
    ],
    [`--json '{"sessionId":"user-42","chatInput":"hi"}'`, []],
    [`--json '{"key":"color","value":"red"}' -H "X-Api-Key: $KEY"`, ["api.example.com:x-api-key"]],
    [`-F password=Rex-24 -H "X-Api-Key: $KEY"`, ["api.example.com:x-api-key", "api.example.com:password"]],
  ])("is the same with every call, and beside another key nothing that only may be one: %s", (rest, names) => {
    const { secrets, candidates } = read(`curl https://api.example.com/x ${rest}`);
    expect([...secrets.keys()]).toEqual(names);
    expect(JSON.stringify(candidates)).not.toMatch(/public-sandbox|user-42|Rex-24/);
  });

  test("has a name of its own for each place", () => {
    const { secrets, candidates } = read(
      `curl 'https://api.example.com/x?Key=k-1&key=k-2&authorization=q-1' -u ann:pw -H 'key: k-3'`,
    );
    expect(new Set(secrets.values())).toEqual(new Set(["Basic YW5uOnB3", "k-1", "k-2", "k-3", "q-1"]));
    const mapping = [...secrets.keys()].map((source) => expect.objectContaining({ source }));
    expect(candidates).toMatchObject([{ definition: { auth_config: { mapping } } }]);
  });

  test("is sent once where it is written out twice, as curl sends it", () => {
    const { secrets, candidates } = read(`curl https://api.example.com/x -u ann:pw -H 'Authorization: Bearer tok-1'`);
    expect([...secrets]).toEqual([["api.example.com:authorization", "tok-1"]]);
    expect(candidates).toMatchObject([{ definition: { auth_config: { type: "bearer", mapping: { length: 1 } } } }]);
  });

  test.each(["<YOUR-TOKEN>", "{access_token}", "${TOKEN}", "YOUR_API_KEY", "xxxxxxxx", "****"])(
    "is not known where documentation has only its place: %s",
    (value) => {
      expect([...read(`curl https://api.example.com/x -H 'X-Api-Key: ${value}'`).secrets.values()]).toEqual([
        undefined,
      ]);
      expect([...read(`curl https://api.example.com/x -u 'api:${value}'`).secrets.values()]).toEqual([
        "api",
        undefined,
      ]);
    },
  );
});
