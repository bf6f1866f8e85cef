// An asynchronous VCP plugin: one JSON object on stdout at once, naming the task; the work; and what came of
// it, sent to the address in CALLBACK_BASE_URL, with the plugin's name and the task's id added.
import { randomUUID } from "node:crypto";
import { text as readAll } from "node:stream/consumers";
import { setTimeout as pause } from "node:timers/promises";

const { text = "", seconds = 3 } = JSON.parse((await readAll(process.stdin)) || "{}");
const delayS = Number(seconds);

if (text === "" || !(delayS >= 0 && delayS <= 600)) {
  const error = "A note needs 'text', and 'seconds' between 0 and 600.";
  console.log(JSON.stringify({ status: "error", error }));
  process.exit(0);
}

const requestId = randomUUID();
const name = process.env.PLUGIN_NAME_FOR_CALLBACK;
console.log(
  JSON.stringify({
    status: "success",
    requestId,
    messageForAI: `The note comes back in ${delayS} seconds: {{VCP_ASYNC_RESULT::${name}::${requestId}}}`,
  }),
);

await pause(delayS * 1_000);

const body = { requestId, pluginName: name, status: "Succeed", message: `Note: ${text}`, text, seconds: delayS };
const answer = await fetch(`${process.env.CALLBACK_BASE_URL}/${name}/${requestId}`, {
  method: "POST",
  headers: { "content-type": "application/json" },
  body: JSON.stringify(body),
});
if (!answer.ok) {
  console.error(`The callback was refused: ${answer.status} ${await answer.text()}`);
  process.exit(1);
}
