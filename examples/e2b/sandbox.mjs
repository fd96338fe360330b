// A sandbox by the unmodified client of E2B: it is made, runs commands, streamed and in the background, has files, is found again by its id,
// and is killed. E2B_API_URL, E2B_SANDBOX_URL and E2B_API_KEY say where Sandjet is: docs/guides/e2b.md.
import { Sandbox } from 'e2b';

const box = await Sandbox.create({ timeoutMs: 600_000 });
try {
  await box.files.write('numbers.txt', '3\n1\n2\n');
  const sorted = await box.commands.run('sort numbers.txt | tee sorted.txt', { onStdout: (text) => process.stdout.write(text) });
  console.log('exit code', sorted.exitCode);

  const same = await Sandbox.connect(box.sandboxId); // as another process would, which knows the id
  console.log((await same.files.list('/home/user')).map((entry) => entry.name).sort().join(' '));
  console.log('read', JSON.stringify(await same.files.read('sorted.txt')));

  const slow = await box.commands.run('sleep 600', { background: true });
  console.log('killed', await slow.kill());
  await box.commands.run('exit 3').catch((error) => console.log('failed with', error.exitCode));
} finally {
  await box.kill();
}
console.log('running', await box.isRunning());
