// What the usual libraries for chat services say of requests and of doubles. The argument is a JSON object; the answer is printed as JSON.
import { Webhooks } from "@octokit/webhooks";
import { Octokit } from "@octokit/rest";
import bolt from "@slack/bolt";
import { WebClient } from "@slack/web-api";
import { verifyKey } from "discord-interactions";
import { Bot, webhookCallback } from "grammy";

const judges = {
  github: async ({ secret, header, body }) => await new Webhooks({ secret }).verify(body, header["X-Hub-Signature-256"]),
  slack: async ({ secret, header, body, at }) => {
    bolt.verifySlackRequest({
      signingSecret: secret, body, nowMilliseconds: at,
      headers: {
        "x-slack-signature": header["X-Slack-Signature"],
        "x-slack-request-timestamp": Number(header["X-Slack-Request-Timestamp"]),
      },
    });
    return true;
  },
  discord: async ({ secret, header, body }) =>
    await verifyKey(body, header["X-Signature-Ed25519"], header["X-Signature-Timestamp"], secret),
  telegram: async ({ secret, header, body }) => {
    const bot = new Bot("1:a", { botInfo: { id: 1, is_bot: true, first_name: "a", username: "a_bot" } });
    const answer = await webhookCallback(bot, "std/http", { secretToken: secret })(
      new Request("https://a.example/", { method: "POST", headers: header, body }));
    return answer.status === 200;
  },
};

async function judge(cases) {
  const verdicts = [];
  for (const c of cases) {
    let genuine = false;
    try {
      genuine = await judges[c.kind](c);
    } catch {
      // A library that throws has not found the request genuine.
    }
    verdicts.push(genuine);
  }
  return verdicts;
}

async function sign({ secret, body }) {
  return await new Webhooks({ secret }).sign(body);
}

async function refusal(promise) {
  try {
    await promise;
  } catch (e) {
    return e.error_code ?? e.data?.error ?? e.status ?? String(e);
  }
  return "none";
}

async function talk({ telegram, slack, github }) {
  const api = new Bot("1:a", { client: { apiRoot: telegram } }).api;
  const me = await api.getMe();
  const message = await api.sendMessage(4711, "<b>hello</b>", {
    parse_mode: "HTML", reply_markup: { inline_keyboard: [[{ text: "Yes", callback_data: "y:1" }]] },
  });
  await api.editMessageText(4711, message.message_id, "other");
  await api.setMessageReaction(4711, message.message_id, [{ type: "emoji", emoji: "👀" }]);
  await api.sendChatAction(4711, "typing");
  const told = {
    me: me.username, gone: await refusal(api.editMessageText(4711, 999999, "other")), long: await refusal(api.sendMessage(4711, "x".repeat(4097))),
  };

  const web = new WebClient("xoxb-1", { slackApiUrl: slack + "/", retryConfig: { retries: 0 } });
  const auth = await web.auth.test();
  const posted = await web.chat.postMessage({
    channel: "C1", text: "hello", metadata: { event_type: "sandjet_delivery", event_payload: { delivery: "k1" } },
    blocks: [{ type: "section", text: { type: "mrkdwn", text: "hello" } }],
  });
  await web.chat.update({ channel: "C1", ts: posted.ts, text: "other", blocks: [] });
  await web.reactions.add({ channel: "C1", timestamp: posted.ts, name: "eyes" });
  const history = await web.conversations.history({ channel: "C1", oldest: "1", include_all_metadata: true });
  const said = {
    me: auth.user, gone: await refusal(web.chat.update({ channel: "C1", ts: "1.1", text: "other" })),
    found: history.messages.filter((m) => m.metadata?.event_payload?.delivery === "k1").map((m) => m.text),
  };

  const octokit = new Octokit({ auth: "ghp_1", baseUrl: github, log: { debug() {}, info() {}, warn() {}, error() {} } });
  const at = { owner: "octo", repo: "hello", issue_number: 5 };
  const comment = await octokit.rest.issues.createComment({ ...at, body: "hello" });
  await octokit.rest.issues.updateComment({ ...at, comment_id: comment.data.id, body: "other" });
  await octokit.rest.reactions.createForIssueComment({ ...at, comment_id: comment.data.id, content: "eyes" });
  const list = await octokit.rest.issues.listComments({ ...at, since: "2020-01-01T00:00:00Z", per_page: 100, page: 1 });
  const noted = {
    me: (await octokit.rest.users.getAuthenticated()).data.login, found: list.data.map((c) => c.body),
    gone: await refusal(octokit.rest.issues.updateComment({ ...at, comment_id: 999999, body: "other" })),
  };
  return { telegram: told, slack: said, github: noted };
}

const { verb, of } = JSON.parse(process.argv[2]);
console.log(JSON.stringify(await { judge, sign, talk }[verb](of)));
