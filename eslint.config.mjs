import js from '@eslint/js';
import ts from 'typescript-eslint';

/** The folders of the labextension. A folder may use the folders that are listed before it. */
const FOLDERS = ['wire', 'model', 'ui', 'views', 'plugins'];

/** Return the configuration that forbids the files in `folder` to use the folders after it. */
function oneWay(folder, files) {
  const after = FOLDERS.slice(FOLDERS.indexOf(folder) + 1);
  const message = `${folder}/ must not use ${after.join('/, ')}/.`;
  return {
    files,
    rules: {
      '@typescript-eslint/no-restricted-imports': [
        'error',
        { patterns: [{ regex: `^[./]+/(${after.join('|')})/`, message }] }
      ]
    }
  };
}

export default ts.config(
  { ignores: ['labextension/lib/**', 'labextension/tests/lib/**'] },
  js.configs.recommended,
  ...ts.configs.strictTypeChecked,
  ...ts.configs.stylisticTypeChecked,
  {
    languageOptions: {
      parserOptions: {
        project: ['labextension/tsconfig.json', 'labextension/tests/tsconfig.json'],
        tsconfigRootDir: import.meta.dirname
      }
    },
    rules: {
      '@typescript-eslint/explicit-module-boundary-types': 'error',
      '@typescript-eslint/consistent-type-imports': 'error',
      eqeqeq: 'error',
      // Lumino's signals take the object beside its method: connect(this.follow, this).
      '@typescript-eslint/unbound-method': 'off'
    }
  },
  {
    files: ['labextension/src/**/*.ts'],
    ignores: ['labextension/src/ui/dom.ts'],
    rules: {
      'no-restricted-syntax': [
        'error',
        { selector: "AssignmentExpression[left.property.name='hidden']", message: 'Use setHidden().' }
      ]
    }
  },
  ...FOLDERS.slice(0, -1).map(folder => oneWay(folder, [`labextension/src/${folder}/**/*.ts`])),
  {
    files: ['labextension/src/plugins/**/*.ts'],
    rules: {
      '@typescript-eslint/no-restricted-imports': [
        'error',
        {
          patterns: [
            {
              regex: '/views/(dashboard|cluster)/(?!clusterSection$)',
              allowTypeImports: true,
              message: 'Use import(), because these views are loaded when they are opened.'
            }
          ]
        }
      ]
    }
  },
  // The interfaces of the tokens describe models.
  oneWay('model', ['labextension/src/tokens.ts']),
  // Plain JavaScript, of no TypeScript project.
  {
    files: ['labextension/style/*.js', 'labextension/*.cjs'],
    languageOptions: { globals: { module: 'writable', require: 'readonly' } },
    extends: [ts.configs.disableTypeChecked],
    // A .cjs file has no import statements.
    rules: { '@typescript-eslint/no-require-imports': 'off' }
  },
  {
    files: ['labextension/tests/*.ts'],
    // node:test awaits what test() returns by itself.
    rules: { '@typescript-eslint/no-floating-promises': 'off' }
  }
);
