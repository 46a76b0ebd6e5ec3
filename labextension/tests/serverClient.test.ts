import { strict as assert } from 'node:assert';
import { test } from 'node:test';

import { ServerConnection } from '@jupyterlab/services';

import { ServerClient } from '../src/model/server/serverClient';
import { DIAGNOSIS, sample, trans } from './fakes';

const NEVER = new AbortController().signal;

/** Return a client of a server that replies with `status` and `body`, and the addresses of its requests. */
function setUp(status: number, body: unknown = '<html>'): { client: ServerClient; urls: URL[] } {
  const urls: URL[] = [];
  const settings = ServerConnection.makeSettings({
    baseUrl: 'http://localhost/',
    fetch: request => {
      urls.push(new URL((request as Request).url));
      const text = typeof body === 'string' ? body : JSON.stringify(body);
      return Promise.resolve(new Response(status === 204 ? null : text, { status }));
    }
  });
  return { client: new ServerClient(settings, trans, () => 600), urls };
}

test('a reply is read', async () => {
  const { client, urls } = setUp(200, sample(7));
  assert.deepEqual(await client.sample(NEVER), { kind: 'ok', value: sample(7) });
  assert.equal(urls[0]?.pathname, '/gpuwidget/api/sample');
});

test('a reply of another version of gpuwidget can’t be read', async () => {
  const result = await setUp(200, { gpus: 'none' }).client.cluster(NEVER);
  assert.match(JSON.stringify(result), /^{"kind":"foreign","reason":".* different versions/);
});

for (const [status, message, kind] of [
  [401, 'Unauthorized', 'refused'],
  [403, 'Forbidden', 'refused'],
  [404, null, 'absent'],
  [404, 'Not Found', 'absent'],
  [404, 'Prometheus has no GPUs of a machine with this name.', 'failed'],
  [405, 'Method Not Allowed', 'absent'],
  [429, 'Try again in 5 seconds.', 'busy'],
  [400, 'points must be a whole number.', 'failed'],
  [500, 'Unhandled error', 'failed'],
  [503, 'The driver has not answered.', 'failed'],
  [424, 'JupyterHub server no longer running.', 'unreachable'],
  [200, null, 'unreachable'],
  [409, null, 'unreachable'],
  [500, null, 'unreachable'],
  [502, null, 'unreachable'],
  [503, null, 'unreachable'],
  [504, 'Gateway Timeout', 'unreachable']
] as const) {
  test(`a reply with ${String(status)} and the message ${message ?? '(none)'} means ${kind}`, async () => {
    const { client } = setUp(status, message === null ? undefined : { message });
    const result = await client.sample(NEVER);
    assert.equal(result.kind, kind);
    if (result.kind === 'failed' || result.kind === 'busy') {
      assert.equal(result.reason, message);
    }
  });
}

for (const [status, kind] of [
  [204, 'ok'],
  [200, 'unreachable'],
  [403, 'refused']
] as const) {
  test(`a change is made only if the status is 204: with ${String(status)}, it is ${kind}`, async () => {
    const { client } = setUp(status);
    assert.equal((await client.setAlwaysOn(true)).kind, kind);
  });
}

for (const [status, kind] of [
  [426, 'ok'],
  [400, 'ok'],
  [429, 'busy'],
  [404, 'absent'],
  [403, 'refused'],
  [424, 'unreachable'],
  [200, 'unreachable'],
  [409, 'unreachable']
] as const) {
  test(`after a websocket has failed, the status ${String(status)} means ${kind}`, async () => {
    assert.equal((await setUp(status).client.probe(NEVER)).kind, kind);
  });
}

test('a stream requests no length of the history from a server that has less', async () => {
  const urls: string[] = [];
  const WebSocket = function (url: string): void {
    urls.push(url);
  } as unknown as typeof globalThis.WebSocket;
  let status = 400;
  const settings = ServerConnection.makeSettings({
    baseUrl: 'http://localhost/',
    wsUrl: 'ws://localhost/',
    appendToken: false,
    WebSocket,
    fetch: () => Promise.resolve(new Response('', { status }))
  });
  const client = new ServerClient(settings, trans, () => 600);
  client.stream();
  await client.probe(NEVER);
  client.stream();
  status = 503; // The server is restarted, which tells nothing about its history.
  await client.probe(NEVER);
  client.stream();
  status = 426;
  await client.probe(NEVER);
  client.stream();
  assert.deepEqual(
    urls.map(url => new URL(url).search),
    ['?history=600', '', '', '?history=600']
  );
});

/** Return a client of a server that never replies. */
function setUpSilent(): ServerClient {
  const settings = ServerConnection.makeSettings({
    baseUrl: 'http://localhost/',
    fetch: request =>
      new Promise((_, reject) => {
        (request as Request).signal.addEventListener('abort', () => {
          reject(new Error('aborted'));
        });
      })
  });
  return new ServerClient(settings, trans);
}

test('a request can be aborted', async () => {
  const request = new AbortController();
  const result = setUpSilent().sample(request.signal);
  request.abort();
  assert.equal((await result).kind, 'unreachable');
});

test('a server that does not answer in time is unreachable', async () => {
  const { timeout } = AbortSignal;
  const limits: number[] = [];
  AbortSignal.timeout = milliseconds => {
    limits.push(milliseconds);
    return timeout.call(AbortSignal, 1);
  };
  // Keeps the process alive, which the timeout does not.
  const alive = setInterval(() => undefined, 1000);
  try {
    const client = setUpSilent();
    const query = { part: { seconds: 1 }, metrics: [], points: 1, node: null };
    const results = [client.sample(NEVER), client.probe(NEVER), client.cluster(NEVER)];
    const others = [client.diagnose('en'), client.history(query, NEVER), client.setAlwaysOn(true)];
    const reasons = (await Promise.all([...results, ...others])).map(result =>
      result.kind === 'unreachable' ? result.reason : result.kind
    );
    const doctor = 'The server did not answer. Check that it is running, then run the doctor again.';
    const sentence = 'The server does not answer.';
    assert.deepEqual(reasons, [sentence, sentence, sentence, doctor, sentence, sentence]);
    assert.deepEqual(limits, [10_000, 10_000, 20_000, 30_000, 120_000, 10_000]);
  } finally {
    AbortSignal.timeout = timeout;
    clearInterval(alive);
  }
});

test('the parameters of a part of the history are sent', async () => {
  const { client, urls } = setUp(503);
  const part = { since: 1.5, until: 2 };
  await client.history({ part, metrics: ['utilization', 'power_w'], points: 400, node: 'a b' }, NEVER);
  const sent = Object.fromEntries([...(urls[0]?.searchParams ?? [])].slice(0, 5));
  assert.deepEqual(sent, {
    metrics: 'utilization,power_w',
    points: '400',
    node: 'a b',
    since: '1.5',
    until: '2'
  });
});

test('a diagnosis has the texts in the language of the page', async () => {
  const { client, urls } = setUp(200, DIAGNOSIS);
  assert.equal((await client.diagnose('zh_CN')).kind, 'ok');
  assert.equal(urls[0]?.searchParams.get('locale'), 'zh_CN');
});
