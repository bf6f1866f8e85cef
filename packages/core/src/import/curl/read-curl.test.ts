import { describe, expect, test } from "vitest";
import { verifies } from "../../../../../test/support/verifies.ts";
import { importLimits } from "../limits.ts";
import { readCurl, type ReadCurl } from "./read-curl.ts";

const read = (command: string): ReadCurl => readCurl(command, { prefix: "" });

describe(`a command as long as one may be ${verifies("BLIND-1")}`, () => {
  const filled = (part: (at: number) => string): string => {
    let text = "";
    for (let at = 0; text.length < importLimits.curlCharacters - 1_000; at += 1) text += part(at);
    return text;
  };

  // So long that whatever goes through all of it for each of its parts takes minutes.
  test.each([
    ["fields of one name", `-d '${filled(() => "a&")}'`],
    ["options", filled(() => "--data=a ")],
    ["names that are one name to a model", `-d '${filled((at) => `a${disguised(at)}=&`)}'`],
  ])("is gone through once: %s", (_what, rest) => {
    expect(read(`curl https://api.example.com/x ${rest}`).candidates).toHaveLength(1);
  });
});

/** A number in signs that no name of an argument has. */
function disguised(number: number): string {
  return number.toString(5).replace(/./g, (digit) => "!*();".charAt(Number(digit)));
}

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
